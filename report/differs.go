package report

import (
	"slices"
	"strings"

	"muster/resource"
	"muster/resource/group"
)

// aDuty is a duty that only one of two declarations of a group has.
type aDuty struct {
	block, section string // "cron", "cron.nightly"
	gone           bool
}

// What is said of a duty that only one side has, by whether it is gone.
var (
	changesDuty = map[bool]string{false: "new", true: "removed"}
	driftsDuty  = map[bool]string{false: "not recorded", true: "not declared"}
)

// differences lists what differs, as value says it. A duty that is new or gone is one field, with one of words. A new
// and a gone one that are equal but for the name are one field together, unless there are more of these: nobody knows
// which is which then.
func differences(cs []resource.Change, words map[bool]string, value func(resource.Change) string) []field {
	var fs []field
	at := map[aDuty]int{} // the index of its field
	for _, c := range cs {
		d, name := dutyOf(c)
		if name == "" {
			fs = append(fs, field{c.Name, value(c)})
			continue
		}
		if _, listed := at[d]; !listed {
			at[d] = len(fs)
			fs = append(fs, field{Key: d.section})
		}
		set := c.New
		if d.gone {
			set = c.Old
		}
		if d.block != string(group.Leader) || name != "prefer" || *set != string(group.Any) { // its default
			fs[at[d]].Value += ", " + name + " " + side(set)
		}
	}
	equal := map[string][]aDuty{}
	for d, i := range at {
		equal[d.block+fs[i].Value] = append(equal[d.block+fs[i].Value], d)
		set := strings.TrimPrefix(fs[i].Value, ", ")
		fs[i].Value = words[d.gone]
		if set != "" {
			fs[i].Value += " (" + set + ")"
		}
	}
	for _, ds := range equal {
		if len(ds) != 2 || ds[0].gone == ds[1].gone {
			continue
		}
		if ds[1].gone {
			slices.Reverse(ds)
		}
		was, is := ds[0], ds[1]
		fs[at[is]] = field{was.section + " -> " + is.section, "renamed, without what members saved for the old one"}
		fs[at[was]] = field{}
	}
	return slices.DeleteFunc(fs, func(f field) bool { return f == field{} })
}

// dutyOf is the duty whose field c is, and the name of the field there. The name is empty if c is no field of a duty
// that only one side has.
func dutyOf(c resource.Change) (d aDuty, name string) {
	block, _, _ := strings.Cut(c.Name, ".")
	dot := strings.LastIndexByte(c.Name, '.')
	if dot <= len(block) || (c.Old == nil) == (c.New == nil) || !slices.Contains(group.Types(), group.Type(block)) {
		return aDuty{}, ""
	}
	return aDuty{block, c.Name[:dot], c.New == nil}, c.Name[dot+1:]
}
