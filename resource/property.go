package resource

import (
	"encoding"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Property is one argument of a kind's block. Each kind has one table of them: decoding, defaults, checks, comparison,
// export and documentation all use that table.
type Property[T any] struct {
	Name      string // "workers"; "timeouts.session" is the argument session of the block timeouts
	Doc       string // what it means, in a few words
	Type      Type
	Default   string   // as users write it, without quotes; unused if Required
	Required  bool     // it has no default
	Min, Max  int64    // of TypeInt and TypeCodes; of TypeDuration in nanoseconds; of TypeSize in bytes
	Choices   []string // of TypeEnum
	Form      string   // of TypeText: which values it may have, in a few words
	Immutable bool     // it cannot change once a member has joined
	// Valid, of TypeText, says why a value that is not the default is not valid, or returns nil.
	Valid func(value string) error
	// Ref points at the value: *int for TypeInt, *Duration for TypeDuration, *Size for TypeSize, *string for TypeEnum
	// and TypeText, *bool for TypeBool, *Codes for TypeCodes.
	Ref func(*T) any
}

// Type is the type of a property's value.
type Type int

const (
	TypeInt      Type = iota // a whole number
	TypeDuration             // "30s"
	TypeSize                 // "256KiB"
	TypeEnum                 // one of Choices
	TypeBool                 // true or false
	TypeText                 // text that Valid accepts
	TypeCodes                // a list of exit codes
)

// DurationOf is a property that is a duration, from 1 ms to MaxDuration.
func DurationOf[T any](name, initial, doc string, ref func(*T) *Duration) Property[T] {
	return Property[T]{
		Name: name, Doc: doc, Type: TypeDuration, Default: initial,
		Min: int64(time.Millisecond), Max: int64(MaxDuration), Ref: func(t *T) any { return ref(t) },
	}
}

// SessionOf is the timeout of a session as a property.
func SessionOf[T any](initial, doc string, ref func(*T) *Duration) Property[T] {
	p := DurationOf("timeouts.session", initial, doc, ref)
	p.Min, p.Max = int64(MinSessionTimeout), int64(MaxSessionTimeout)
	return p
}

// EnumOf is a property that is one of choices, of which the first is the default.
func EnumOf[T any, E ~string](name, doc string, ref func(*T) *string, choices ...E) Property[T] {
	p := Property[T]{
		Name: name, Doc: doc, Type: TypeEnum, Default: string(choices[0]), Ref: func(t *T) any { return ref(t) },
	}
	for _, c := range choices {
		p.Choices = append(p.Choices, string(c))
	}
	return p
}

// SetDefaults sets every property of t that has a default.
func SetDefaults[T any](ps []Property[T], t *T) {
	for _, p := range ps {
		if !p.Required {
			p.setDefault(t)
		}
	}
}

// setDefault sets p to its default. It drops errors: a test checks that every default can be parsed.
func (p Property[T]) setDefault(t *T) {
	switch to := p.Ref(t).(type) {
	case *int:
		*to, _ = strconv.Atoi(p.Default)
	case encoding.TextUnmarshaler: // *Duration, *Size, *Codes
		_ = to.UnmarshalText([]byte(p.Default))
	case *string:
		*to = p.Default
	case *bool:
		*to, _ = strconv.ParseBool(p.Default)
	}
}

// number is the value in t, if it is of TypeInt, TypeDuration or TypeSize.
func (p Property[T]) number(t *T) (n int64, ok bool) {
	switch v := p.Ref(t).(type) {
	case *int:
		return int64(*v), true
	case *Duration:
		return int64(*v), true
	case *Size:
		return int64(*v), true
	}
	return 0, false
}

// write is such a number as users write it.
func (p Property[T]) write(n int64) string {
	switch p.Type {
	case TypeDuration:
		return Duration(n).String()
	case TypeSize:
		return Size(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// Text is the value in t as users write it.
func (p Property[T]) Text(t *T) string {
	switch v := p.Ref(t).(type) {
	case *string:
		return *v
	case *bool:
		return strconv.FormatBool(*v)
	case *Codes:
		return v.String()
	}
	n, _ := p.number(t)
	return p.write(n)
}

// defaultText is the default as Text writes it.
func (p Property[T]) defaultText() string {
	if p.Type != TypeDuration && p.Type != TypeSize {
		return p.Default
	}
	var t T
	p.setDefault(&t)
	return p.Text(&t)
}

// IsMissing reports whether p has no value in t. An empty word is never a valid value, and 0 only if it is within the
// limits.
func (p Property[T]) IsMissing(t *T) bool {
	n, isNumber := p.number(t)
	return isNumber && n == 0 && p.Min > 0 || !isNumber && p.Text(t) == ""
}

// Check returns an error that names the first invalid value of t, or nil. It is for what is read back from ZooKeeper or
// a plan file. Package spec checks HCL itself, more strictly, and reports the place.
func Check[T any](ps []Property[T], t *T) error {
	for _, p := range ps {
		switch n, isNumber := p.number(t); {
		case p.Type == TypeDuration && n < 0:
			return fmt.Errorf("%s: %s is negative", p.Name, p.Text(t))
		case p.Type == TypeDuration:
		case isNumber && (n < p.Min || n > p.Max):
			return fmt.Errorf("%s: %s is not between %s and %s", p.Name, p.Text(t), p.write(p.Min), p.write(p.Max))
		case p.Type == TypeCodes:
			if err := p.Ref(t).(*Codes).check(p.Min, p.Max); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		default:
			if err := p.CheckText(p.Text(t)); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// CheckText says why value is not a valid one of p, whose type is TypeEnum or TypeText, or returns nil.
func (p Property[T]) CheckText(value string) error {
	switch {
	case p.Type == TypeEnum && !slices.Contains(p.Choices, value):
		return fmt.Errorf("%q is not known", value)
	case p.Type == TypeText && (p.Required || value != p.Default) && p.Valid != nil:
		return p.Valid(value)
	}
	return nil
}

// FieldsOf lists the values in t in the order of the table.
func FieldsOf[T any](ps []Property[T], t *T) []Field {
	fs := make([]Field, len(ps))
	for i, p := range ps {
		text := p.Text(t)
		fs[i] = Field{p.Name, text, p.Immutable, !p.Required && (text == p.Default || text == p.defaultText())}
	}
	return fs
}

func Names[T any](ps []Property[T]) []string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Name
	}
	return names
}

// Limits says which values p may have: "1 to 20000", "100ms to 24h", "protobuf or text", "a version constraint".
func (p Property[T]) Limits() string {
	switch p.Type {
	case TypeInt, TypeDuration, TypeSize:
		return p.write(p.Min) + " to " + p.write(p.Max)
	case TypeEnum:
		return strings.Join(p.Choices, " or ")
	case TypeText:
		return p.Form
	case TypeCodes:
		return fmt.Sprintf("exit codes from %d to %d", p.Min, p.Max)
	}
	return "true or false"
}

// EncodeChanged encodes those properties of t that do not have their default as one JSON object, in the order of the
// table. The names in the table have no dots, and are those in JSON. It is for what a declaration has many of: written
// out, the defaults would fill most of a Record.
func EncodeChanged[T any](ps []Property[T], t *T) ([]byte, error) {
	body := []byte("{")
	for _, p := range ps {
		if !p.Required && p.Text(t) == p.defaultText() {
			continue
		}
		value, err := json.Marshal(p.Ref(t))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, "%q:%s", p.Name, value)
	}
	return append(body, '}'), nil
}
