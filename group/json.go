package group

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"muster/resource"
)

// groupJSON is a Group in JSON. Of a duty only what is not the default is written: 1,000 duties with all their defaults
// would have 225 KiB, more than twice MaxSize.
type groupJSON struct {
	plainGroup
	dutiesJSON
}

// plainGroup is Group without its methods.
type plainGroup Group

// dutiesJSON holds the duties as objects by name, below their type, as in HCL.
type dutiesJSON struct {
	Leader map[string]json.RawMessage `json:"leader,omitempty"`
	Cron   map[string]json.RawMessage `json:"cron,omitempty"`
}

// of returns the duties of one type.
func (j *dutiesJSON) of(t Type) *map[string]json.RawMessage {
	if t == Cron {
		return &j.Cron
	}
	return &j.Leader
}

// MarshalJSON implements json.Marshaler. Equal groups have equal bytes.
func (g Group) MarshalJSON() ([]byte, error) {
	doc := groupJSON{plainGroup: plainGroup(g)}
	for _, d := range g.Duties {
		body, err := resource.EncodeChanged(DutyProperties(d.Type), &d)
		if err != nil {
			return nil, err
		}
		all := doc.of(d.Type)
		if *all == nil {
			*all = map[string]json.RawMessage{}
		}
		(*all)[d.Name] = body
	}
	return json.Marshal(doc)
}

// UnmarshalJSON implements json.Unmarshaler. What is absent keeps its value in g, except that all duties are replaced.
func (g *Group) UnmarshalJSON(body []byte) error {
	var doc dutiesJSON // apart from the rest, since an error would name the embedded struct
	if err := json.Unmarshal(body, (*plainGroup)(g)); err != nil {
		return err
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	g.Duties = nil
	for _, t := range Types() {
		objects := *doc.of(t)
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			d := NewDuty(t, name)
			err := resource.DecodeChanged(DutyProperties(t), objects[name], &d)
			if mismatch := new(json.UnmarshalTypeError); errors.As(err, &mismatch) {
				mismatch.Field = d.Section() + "." + mismatch.Field
			}
			if err != nil {
				return err
			}
			resource.FillMissing(DutyProperties(t), &d)
			g.Duties = append(g.Duties, d)
		}
	}
	slices.SortFunc(g.Duties, compareDuties)
	return nil
}
