package spec

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
)

// duration decodes a Go duration between two bounds.
func (s *scope) duration(a *hcl.Attribute, least, most resource.Duration) (resource.Duration, bool) {
	v, ok := s.eval(a.Expr)
	if !ok || v.IsNull() {
		return 0, false
	}
	if v.Type() == cty.Number {
		d := s.wrong(codeDuration, a, v, "%s must be a duration: a string with a unit", a.Name)
		d.Help = fmt.Sprintf("if seconds are meant, write %q", number(v)+"s")
		return 0, false
	}
	if v.Type() != cty.String {
		d := s.wrong(codeType, a, v, "%s must be a duration: a string with a unit", a.Name)
		if d.Note == "" {
			d.Note = "this is " + aTypeName(v)
		}
		d.Help = `write a number and a unit, such as "30s" or "2m"`
		return 0, false
	}
	text := v.AsString()
	var length resource.Duration
	if length.UnmarshalText([]byte(text)) != nil {
		d := s.wrong(codeDuration, a, v, "%s must be a duration, such as \"30s\" or \"2m\"", a.Name)
		d.Help = "units are h, m, s and ms; they can be combined: \"1m30s\""
		if meant, ok := durationMeant(text); ok {
			d.Help = fmt.Sprintf("write %q", meant)
		}
		return 0, false
	}
	if length < least || length > most {
		d := s.wrong(codeDuration, a, v, "%s must be from %s to %s", a.Name, least, most)
		switch {
		case length < 0 && least == 0:
			d.Help = "a duration is not negative"
		case length <= 0:
			d.Help = "a duration is positive; to use the default, remove the argument"
		}
		return 0, false
	}
	return length, true
}

// durationMeant guesses the duration that somebody meant: "30 seconds", "1 min", "2 days", "30".
func durationMeant(text string) (string, bool) {
	units := map[string]time.Duration{
		"": time.Second, "ms": time.Millisecond, "msec": time.Millisecond, "millisecond": time.Millisecond,
		"s": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute,
		"minute": time.Minute, "h": time.Hour, "hr": time.Hour, "hour": time.Hour, "d": 24 * time.Hour,
		"day": 24 * time.Hour, "w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
	}
	part := regexp.MustCompile(`^[\s,]*(?:and\s+)?([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([a-z]*)`)
	var total time.Duration
	rest := strings.ToLower(strings.TrimSpace(text))
	for rest != "" {
		m := part.FindStringSubmatch(rest)
		if m == nil {
			return "", false
		}
		unit, ok := units[m[2]]
		if !ok {
			unit, ok = units[strings.TrimSuffix(m[2], "s")]
		}
		if !ok {
			return "", false
		}
		n, err := time.ParseDuration(m[1] + "h")
		if err != nil {
			return "", false
		}
		total += time.Duration(n.Hours() * float64(unit))
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	if total <= 0 || total > time.Duration(resource.MaxDuration) {
		return "", false
	}
	return resource.Duration(total).String(), true
}
