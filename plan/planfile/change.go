package planfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
)

// change is one row in a plan file. It also holds what follows from the other fields, for readers other than muster.
// Decode refuses a file in which these contradict each other.
type change struct {
	Address      string          `json:"address"`
	Type         string          `json:"type"` // the kind: "job"
	Name         string          `json:"name"`
	Path         string          `json:"path"`
	DeclaredAt   string          `json:"declared_at,omitempty"`
	Status       resource.Status `json:"status"`
	ActionReason plan.Reason     `json:"action_reason"`
	Change       beforeAfter     `json:"change"`
	BlockedBy    []obstacle      `json:"blocked_by"`
	Precondition *precondition   `json:"precondition"` // null: the znode must not exist
	Recorded     *recorded       `json:"recorded,omitempty"`
	Workers      []string        `json:"workers,omitempty"`
	Strangers    []string        `json:"strangers,omitempty"`
	// Saved is what members have saved, where the row deletes some of it.
	Saved []resource.Saved `json:"saved,omitempty"`
}

// beforeAfter holds the recorded and the new declaration. A blocked row has After too.
type beforeAfter struct {
	Actions []string        `json:"actions"`
	Before  json.RawMessage `json:"before"`
	After   json.RawMessage `json:"after"`
}

// obstacle says why a row is blocked, and what to do next.
type obstacle struct {
	Because   string `json:"because"`
	ToProceed string `json:"to_proceed"`
}

// precondition holds the observed facts that must still hold when the row is committed, and the counts of the kind.
type precondition = open[facts, int]

type facts struct {
	Generation string `json:"generation,omitempty"`
	resource.Observed
}

// recorded is the rest of the Record, with the fields that the kind or a newer muster keeps in it.
type recorded = open[recordFields, json.RawMessage]

type recordFields struct {
	Kind string `json:"kind,omitempty"` // of the Record, if the declaration is of another kind
	resource.Record
	Edited bool `json:"edited,omitempty"` // the digest does not verify
}

// open is one JSON object: the fields of the struct F, which has some, and further keys.
type open[F, V any] struct {
	fields  F
	further map[string]V // nil if there are none
}

// MarshalJSON writes a key that both have twice. Readers of JSON take the last one: the struct's.
func (o open[F, V]) MarshalJSON() ([]byte, error) {
	known, err := json.Marshal(o.fields)
	if err != nil || len(o.further) == 0 {
		return known, err
	}
	others, err := json.Marshal(o.further)
	if err != nil {
		return nil, err
	}
	others[len(others)-1] = ','
	return append(others, known[1:]...), nil
}

func (o *open[F, V]) UnmarshalJSON(body []byte) error {
	var object map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(body, &o.fields), json.Unmarshal(body, &object)); err != nil {
		return err
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[F]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			delete(object, name)
		}
	}
	for key, body := range object {
		var value V
		if err := json.Unmarshal(body, &value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if o.further == nil {
			o.further = map[string]V{}
		}
		o.further[key] = value
	}
	return nil
}

// verbs are Terraform's words for an action.
func verbs(a plan.Action) []string {
	switch a {
	case plan.Create, plan.Delete, plan.Update:
		return []string{string(a)}
	case plan.Replace:
		return []string{"delete", "create"}
	}
	return []string{"no-op"}
}

func encodeRow(r plan.Row, kind resource.Kind) (change, error) {
	c := change{
		Address: r.Address(), Type: kind.Name, Name: r.Name(), Path: r.Path, DeclaredAt: r.At(), Status: r.Old.Status(),
		ActionReason: r.Reason, Change: beforeAfter{Actions: verbs(r.Action())}, BlockedBy: []obstacle{},
	}
	var err error
	if r.New != nil {
		if c.Change.After, err = json.Marshal(r.New); err != nil {
			return c, err
		}
	}
	if r.Action() == plan.Blocked {
		c.BlockedBy = append(c.BlockedBy, obstacle{r.Because(), r.Proceed()})
	}
	o := r.Old
	if o == nil {
		return c, nil
	}
	c.Workers, c.Strangers, c.Saved = o.Members, o.Strangers, o.Saved
	c.Precondition = &precondition{facts{Observed: *o}, countsOf(kind, o)}
	if rec := o.Record; rec != nil {
		c.Precondition.fields.Generation = rec.Generation
		fields := recordFields{Record: *rec, Edited: rec.Edited()}
		fields.Generation = "" // it is in the precondition
		if was := rec.Declaration.Kind().Name; was != kind.Name {
			fields.Kind = was
		}
		c.Recorded = &recorded{fields, rec.Extra}
		c.Change.Before, err = json.Marshal(rec.Declaration)
	}
	return c, err
}

// countsOf are the counts of o that a plan file has: all that the kind of its Record counts. Without a Record these are
// the counts of the row's kind, and others that are not 0: what is there may look like a resource of another kind.
func countsOf(kind resource.Kind, o *resource.Observed) map[string]int {
	counts := map[string]int{}
	if o.Record != nil {
		kind = o.Record.Declaration.Kind()
	} else {
		maps.Copy(counts, o.Counts)
		maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	}
	for _, count := range kind.Counts {
		counts[count.Name] = o.Count(count.Name)
	}
	return counts
}

// row is the inverse of encodeRow.
func (c change) row(kinds []resource.Kind) (plan.Row, error) {
	r := plan.Row{Path: c.Path, Reason: c.ActionReason}
	kind, ok := kindNamed(kinds, c.Type)
	if !ok {
		return r, fmt.Errorf("type %q is not known", c.Type)
	}
	var err error
	if r.New, err = decodeDeclaration(kind, c.Change.After, c.DeclaredAt); err != nil {
		return r, err
	}
	pre := c.Precondition
	if pre == nil {
		return r, nil
	}
	r.Old = &pre.fields.Observed
	r.Old.Counts, r.Old.Members, r.Old.Strangers, r.Old.Saved = pre.further, c.Workers, c.Strangers, c.Saved
	if c.Recorded != nil {
		rec := &c.Recorded.fields
		r.Old.Record = &rec.Record
		rec.Generation, rec.Extra = pre.fields.Generation, c.Recorded.further
		rec.SetEdited(rec.Edited)
		was, ok := kindNamed(kinds, cmp.Or(rec.Kind, kind.Name))
		if !ok {
			return r, fmt.Errorf("recorded.kind %q is not known", rec.Kind)
		}
		if r.Old.Record.Declaration, err = decodeDeclaration(was, c.Change.Before, ""); err != nil {
			return r, err
		}
		if r.Old.Record.Declaration == nil {
			return r, errors.New("it has a record and no change.before")
		}
	}
	return r, nil
}

func kindNamed(kinds []resource.Kind, name string) (resource.Kind, bool) {
	i := slices.IndexFunc(kinds, func(k resource.Kind) bool { return k.Name == name })
	if i < 0 {
		return resource.Kind{}, false
	}
	return kinds[i], true
}

// decodeDeclaration decodes Before or After. null is nil.
func decodeDeclaration(kind resource.Kind, body json.RawMessage, at string) (resource.Declaration, error) {
	if len(body) == 0 || string(body) == "null" {
		return nil, nil
	}
	return kind.Decode(body, at)
}
