package plan

import (
	"cmp"
	"slices"
	"strings"

	"muster/resource"
	"muster/text"
)

// Loss lists what members have saved and the commit of r deletes: everything if it deletes or replaces the resource;
// else what was saved for sections that the declaration does not have any more.
func (r Row) Loss() []resource.Saved {
	switch {
	case r.Old == nil || len(r.Old.Saved) == 0 || !r.Action().Changes() || r.Reason == IsDamaged:
		return nil
	case r.Action() == Delete || r.Action() == Replace:
		return r.Old.Saved
	}
	kept := map[string]bool{}
	for _, f := range r.New.Fields() {
		kept[f.Name[:max(0, strings.LastIndexByte(f.Name, '.'))]] = true
	}
	return slices.DeleteFunc(slices.Clone(r.Old.Saved), func(s resource.Saved) bool { return kept[s.Section] })
}

// Deletes reports whether the commit of r deletes the resource, or something that members have saved.
func (r Row) Deletes() bool { return r.Action() == Delete || len(r.Loss()) > 0 }

// Deletions lists those of rows that delete something. Guards against accidents count them.
func Deletions(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.Deletes() })
}

// CountText counts rows by their kinds: "1 group and 2 jobs".
func CountText(rows []Row) string {
	var kinds []string
	for _, r := range rows {
		kinds = append(kinds, r.Kind().Name)
	}
	return text.CountEach(kinds)
}

// DeletionsText says what rows delete: "2 jobs", "what was saved in 1 group".
func DeletionsText(rows []Row) string {
	var whole, inside []string
	for _, r := range Deletions(rows) {
		if r.Action() == Delete {
			whole = append(whole, r.Kind().Name)
		} else {
			inside = append(inside, r.Kind().Name)
		}
	}
	switch {
	case len(inside) == 0:
		return text.CountEach(whole)
	case len(whole) == 0:
		return "what was saved in " + text.CountEach(inside)
	}
	return text.CountEach(whole) + ", and what was saved in " + text.CountEach(inside)
}

// LossText says what Loss lists, first what is open and what is large: "3 keys, 12 KiB, 1 open operation: leader.main
// (1 key, 8 KiB, open operation checkpoint), cron.report (2 keys, 4 KiB)"; empty if nothing is lost.
func (r Row) LossText() string {
	const most = 3 // sections that are named
	lost := slices.SortedStableFunc(slices.Values(r.Loss()), func(a, b resource.Saved) int {
		return cmp.Or(cmp.Compare(len(b.Open), len(a.Open)), cmp.Compare(b.Bytes, a.Bytes))
	})
	var all resource.Saved
	sections := make([]string, len(lost))
	for i, s := range lost {
		all.Keys += s.Keys
		all.Bytes += s.Bytes
		all.Open = append(all.Open, s.Open...)
		names := ""
		for _, name := range s.Open {
			names += ", open operation " + name
		}
		sections[i] = s.Section + " (" + amount(s) + names + ")"
	}
	if len(lost) < 2 {
		return strings.Join(sections, "")
	}
	total := amount(all)
	if n := len(all.Open); n > 0 {
		total += ", " + text.Count(n, "open operation")
	}
	return total + ": " + text.List(sections, most)
}

// amount is "3 keys, 12 KiB".
func amount(s resource.Saved) string { return text.Count(s.Keys, "key") + ", " + text.Size(s.Bytes) }
