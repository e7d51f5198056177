package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
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
			ig.Fields, _ = s.texts(a, func(text string, a *hcl.Attribute) bool {
				return s.ignoredField(text, a, kindAt(ig.Address))
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
	text, ok := s.required(a)
	if !ok || strings.HasPrefix(text, "/") {
		return text
	}
	if _, declared := d.places[text]; declared || s.incomplete {
		return text
	}
	k := kindAt(text).block()
	block, _, _ := strings.Cut(k+"."+strings.TrimPrefix(text, k+"."), "[")
	expanded, isBlock := d.blocks[block]
	if isBlock && !expanded {
		return text // its for_each could not be evaluated, which has been reported
	}
	known := sortedKeys(d.places)
	f := s.wrong(codeIgnored, a, cty.StringVal(text), "no %s has this address", k)
	switch {
	case nearest(text, known) != "":
		f.Help = "did you mean " + quote(nearest(text, known)) + "?"
	case slices.Contains(known, k+"."+text):
		f.Help = "write " + quote(k+"."+text)
	case isBlock && !strings.Contains(text, "["):
		f.Help = fmt.Sprintf("the %s has a for_each; name one instance: %q", k, block+`["key"]`)
	default:
		f.Help = fmt.Sprintf("an address is %[1]s.NAME or %[1]s.NAME[\"key\"]; an undeclared %[1]s's address is its path", k)
	}
	return text
}

// ignoredField checks a name in fields: a field, or a section of them.
func (s *scope) ignoredField(text string, a *hcl.Attribute, k kind) bool {
	known := []string{"labels"}
	for _, section := range schemaOf(k.names()).blocks {
		known = append(known, section.name)
	}
	known = append(known, k.names()...)
	if slices.Contains(known, text) || len(text) > len("labels.") && strings.HasPrefix(text, "labels.") {
		return true
	}
	s.wrong(codeIgnoreField, a, cty.StringVal(text), "a %s has no field %q", k.block(), text).Help = meant(text, known, "it has")
	return false
}

// until decodes the last day of an ignore.
func (s *scope) until(a *hcl.Attribute) time.Time {
	text, ok := s.required(a)
	if !ok {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		s.wrong(codeDate, a, cty.StringVal(text), "until must be a date").Help = `write it as year-month-day: "2027-01-31"`
		return time.Time{}
	}
	if now := s.opts.Now; !now.IsZero() && !now.UTC().Before(day.AddDate(0, 0, 1)) {
		days := int(now.UTC().Sub(day).Hours() / 24)
		d := s.wrong(codeExpired, a, cty.StringVal(text), "this ignore expired on %s", text)
		d.Note = plural(days, "day") + " ago"
		d.Help = "apply or adopt what it ignores and remove the block, or move until, which says that it is still wanted"
	}
	return day
}
