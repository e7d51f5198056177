package resource

import (
	"encoding/json"
	"errors"
	"fmt"
)

// EncodeChanged encodes those properties of t that do not have their default as one JSON object, in the order of the
// table. The names in the table have no dots. It is for what a declaration has many of: written out, the defaults would
// fill most of a Record.
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

// DecodeChanged is the inverse of EncodeChanged. A property that is absent from body keeps the value that it has in t.
// A key that the table does not have is skipped, since a newer muster may have written it.
func DecodeChanged[T any](ps []Property[T], body []byte, t *T) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(body, &values); err != nil {
		return err
	}
	for _, p := range ps {
		if values[p.Name] == nil {
			continue
		}
		err := json.Unmarshal(values[p.Name], p.Ref(t))
		if mismatch := new(json.UnmarshalTypeError); errors.As(err, &mismatch) {
			mismatch.Field = p.Name
		}
		if err != nil {
			return err
		}
	}
	return nil
}
