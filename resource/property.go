package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Property is one argument of a kind's block, with all that is known of it. A kind has one table of them, from which its
// decoding, defaults, checks, comparison, export and documentation follow.
type Property[T any] struct {
	Name      string // "workers"; "timeouts.session" is the argument session of the block timeouts
	Doc       string // what it says, in a few words
	Type      Type
	Default   string   // as users write it, without quotes; unused if Required
	Required  bool     // it has no default
	Min, Max  int64    // of a Whole; of a Span in nanoseconds
	Choices   []string // of a Choice
	Immutable bool     // it cannot change once a member has joined
	// Ref points at the value: *int for a Whole, *Duration for a Span, *string for a Choice, *bool for a Flag.
	Ref func(*T) any
}

// Type is how a property is written.
type Type int

// The types.
const (
	Whole  Type = iota // a whole number
	Span               // a duration: "30s"
	Choice             // one of a few words
	Flag               // true or false
)

// Defaults sets every property of t that has a default.
func Defaults[T any](ps []Property[T], t *T) {
	for _, p := range ps {
		if !p.Required {
			p.parse(t)
		}
	}
}

// parse sets the default of p, which a test has seen to be one.
func (p Property[T]) parse(t *T) {
	switch to := p.Ref(t).(type) {
	case *int:
		*to, _ = strconv.Atoi(p.Default)
	case *Duration:
		_ = to.UnmarshalText([]byte(p.Default))
	case *string:
		*to = p.Default
	case *bool:
		*to, _ = strconv.ParseBool(p.Default)
	}
}

// Text is the value in t as users write it.
func (p Property[T]) Text(t *T) string {
	switch v := p.Ref(t).(type) {
	case *int:
		return strconv.Itoa(*v)
	case *Duration:
		return v.String()
	case *string:
		return *v
	case *bool:
		return strconv.FormatBool(*v)
	}
	return ""
}

// usual is the default as Text writes it.
func (p Property[T]) usual() string {
	if p.Type == Span {
		var d Duration
		_ = d.UnmarshalText([]byte(p.Default))
		return d.String()
	}
	return p.Default
}

// Fill gives every property that has no value its default: an older or a foreign program did not write it. No property
// that is a number, a duration or a word has a sensible empty value.
func Fill[T any](ps []Property[T], t *T) {
	for _, p := range ps {
		empty := false
		switch v := p.Ref(t).(type) {
		case *int:
			empty = *v == 0
		case *Duration:
			empty = *v == 0
		case *string:
			empty = *v == ""
		}
		if empty && !p.Required {
			p.parse(t)
		}
	}
}

// Check says which value of t cannot be, by its name, or returns nil. It is for what was read back: HCL is checked where it
// stands, with its place, and more strictly.
func Check[T any](ps []Property[T], t *T) error {
	for _, p := range ps {
		switch v := p.Ref(t).(type) {
		case *int:
			if int64(*v) < p.Min || int64(*v) > p.Max {
				return fmt.Errorf("%s: %d is not between %d and %d", p.Name, *v, p.Min, p.Max)
			}
		case *Duration:
			if *v < 0 {
				return fmt.Errorf("%s: %s is negative", p.Name, *v)
			}
		case *string:
			if !slices.Contains(p.Choices, *v) {
				return fmt.Errorf("%s: %q is not known", p.Name, *v)
			}
		}
	}
	return nil
}

// FieldsOf lists the values in t in the order of the table.
func FieldsOf[T any](ps []Property[T], t *T) []Field {
	fs := make([]Field, len(ps))
	for i, p := range ps {
		text := p.Text(t)
		fs[i] = Field{p.Name, text, p.Immutable, !p.Required && text == p.usual()}
	}
	return fs
}

// Names lists the names of a table.
func Names[T any](ps []Property[T]) []string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Name
	}
	return names
}

// Limits says what the values of p may be: "1 to 20000", "100ms to 24h", "protobuf or text".
func (p Property[T]) Limits() string {
	switch p.Type {
	case Whole:
		return fmt.Sprintf("%d to %d", p.Min, p.Max)
	case Span:
		return fmt.Sprintf("%s to %s", Duration(time.Duration(p.Min)), Duration(time.Duration(p.Max)))
	case Choice:
		return strings.Join(p.Choices, " or ")
	}
	return "true or false"
}
