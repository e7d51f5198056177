package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/text"
)

// readDrift decodes the ignore blocks. Each must expire.
func (l *loader) readDrift(c *Config, d declared) {
	for _, b := range l.blocks["drift"] {
		for _, ig := range l.content(b.Body, schema{blocks: []blockType{{name: "ignore"}}}, "drift").blocks {
			l.readIgnore(c, ig, d)
		}
	}
}

func (l *loader) readIgnore(c *Config, b *hcl.Block, d declared) {
	names := []string{"address", "fields", "until", "reason"}
	body := l.content(b.Body, schema{args: names}, "ignore")
	s := l.newScope("ignore")
	ig := Ignore{At: at(b.DefRange)}
	for _, name := range names {
		a := body.args[name]
		if a == nil {
			if name != "fields" && body.ok {
				s.add(codeMissing, &b.DefRange, "an ignore block needs the argument %s", name).Help = missingHelp(name)
			}
			continue
		}
		switch name {
		case "address":
			ig.Address = s.ignored(a, d)
		case "fields":
			ig.Fields, _ = s.texts(a, func(name string, a *hcl.Attribute) bool {
				return s.ignoredField(name, a, kindAt(ig.Address))
			})
		case "until":
			ig.Until = s.until(a)
		case "reason":
			reason, ok := s.required(a)
			if ig.Reason = reason; ok && strings.TrimSpace(reason) == "" {
				s.wrong(codeReason, a, cty.NilVal, "the reason is empty").Help = missingHelp(name)
			}
		}
	}
	if !s.failed && body.ok {
		c.Ignores = append(c.Ignores, ig)
	}
}

func missingHelp(name string) string {
	switch name {
	case "until":
		return `drift is ignored for a while only; add: until = "2027-01-31"`
	case "reason":
		return "say why, and where that is tracked: whoever meets this later will want to know"
	}
	return `add: address = "job.NAME"`
}

// ignored decodes the address of an ignore: a declared job, or the path of an undeclared one.
func (s *scope) ignored(a *hcl.Attribute, d declared) string {
	address, ok := s.required(a)
	if !ok || strings.HasPrefix(address, "/") {
		return address
	}
	if _, declared := d.places[address]; declared || s.incomplete {
		return address
	}
	k := kindAt(address).block()
	block, _, _ := strings.Cut(k+"."+strings.TrimPrefix(address, k+"."), "[")
	expanded, isBlock := d.blocks[block]
	if isBlock && !expanded {
		return address // its for_each could not be evaluated, which has been reported
	}
	known := sortedKeys(d.places)
	f := s.wrong(codeIgnored, a, cty.StringVal(address), "no %s has this address", k)
	switch {
	case text.Nearest(address, known) != "":
		f.Help = "did you mean " + quote(text.Nearest(address, known)) + "?"
	case slices.Contains(known, k+"."+address):
		f.Help = "write " + quote(k+"."+address)
	case isBlock && !strings.Contains(address, "["):
		f.Help = fmt.Sprintf("the %s has a for_each; name one instance: %q", k, block+`["key"]`)
	default:
		f.Help = fmt.Sprintf("an address is %[1]s.NAME or %[1]s.NAME[\"key\"]; "+
			"an undeclared %[1]s's address is its path", k)
	}
	return address
}

// ignoredField checks a name in fields: a field, or a section of them.
func (s *scope) ignoredField(name string, a *hcl.Attribute, k kind) bool {
	for _, block := range k.within() { // the fields of one of them cannot be told from its name, which may hold dots
		if rest, ok := strings.CutPrefix(name, block); ok && (rest == "" || len(rest) > 1 && rest[0] == '.') {
			return true
		}
	}
	known := append([]string{"labels"}, k.within()...)
	for _, section := range schemaOf(k.names()).blocks {
		known = append(known, section.name)
	}
	known = append(known, k.names()...)
	if slices.Contains(known, name) || len(name) > len("labels.") && strings.HasPrefix(name, "labels.") {
		return true
	}
	d := s.wrong(codeIgnoreField, a, cty.StringVal(name), "a %s has no field %q", k.block(), name)
	d.Help = meant(name, known, "it has")
	return false
}

// until decodes the last day of an ignore.
func (s *scope) until(a *hcl.Attribute) time.Time {
	date, ok := s.required(a)
	if !ok {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		d := s.wrong(codeDate, a, cty.StringVal(date), "until must be a date")
		d.Help = `write it as year-month-day: "2027-01-31"`
		return time.Time{}
	}
	if now := s.opts.Now; !now.IsZero() && !now.UTC().Before(day.AddDate(0, 0, 1)) {
		days := int(now.UTC().Sub(day).Hours() / 24)
		d := s.wrong(codeExpired, a, cty.StringVal(date), "this ignore expired on %s", date)
		d.Note = text.Count(days, "day") + " ago"
		d.Help = "apply or adopt what it ignores and remove the block, or move until, " +
			"which says that it is still wanted"
	}
	return day
}
