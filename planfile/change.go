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

// change is one row in a plan file. What a Row derives is written too, for readers that are not muster; a file in which
// it contradicts the reason is refused.
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
	Precondition *precondition   `json:"precondition"` // null: there must be nothing
	Recorded     *recorded       `json:"recorded,omitempty"`
	Workers      []string        `json:"workers,omitempty"`
	Strangers    []string        `json:"strangers,omitempty"`
}

// beforeAfter: what is recorded and what is declared. After is the declaration also where the row is blocked.
type beforeAfter struct {
	Actions []string        `json:"actions"`
	Before  json.RawMessage `json:"before"`
	After   json.RawMessage `json:"after"`
}

// obstacle is what stands in the way of a blocked row, and what to do next.
type obstacle struct {
	Because   string `json:"because"`
	ToProceed string `json:"to_proceed"`
}

// precondition is the observed facts that must still hold when the row is committed. The counts of the kind stand beside
// the other fields, under their names.
type precondition struct {
	facts
	counts map[string]int
}

type facts struct {
	Generation    string          `json:"generation,omitempty"`
	Version       int32           `json:"version"`
	RecordVersion int32           `json:"record_version"`
	Pzxid         int64           `json:"pzxid"`
	Live          int             `json:"live"`
	Classic       bool            `json:"classic,omitempty"`
	Companions    []string        `json:"companions,omitempty"`
	Foreign       bool            `json:"foreign,omitempty"`
	Problem       string          `json:"problem,omitempty"`
	Lost          []resource.Part `json:"lost,omitempty"`
	BeyondRepair  string          `json:"beyond_repair,omitempty"`
}

// recorded is the rest of the Record: who applied it, when, and how it is owned. What the kind, or a newer muster, keeps
// in the Record stands beside the other fields.
type recorded struct {
	signature
	extra map[string]json.RawMessage
}

type signature struct {
	Kind    string         `json:"kind,omitempty"` // of what is recorded, where something of another kind is declared
	Stack   string         `json:"stack"`
	Home    string         `json:"home,omitempty"`
	State   resource.State `json:"state"`
	By      string         `json:"by,omitempty"`
	Applied string         `json:"applied,omitempty"`
	Op      string         `json:"op"`
	Digest  string         `json:"digest"`
	Edited  bool           `json:"edited,omitempty"` // the digest does not verify
	ACL     []string       `json:"acl,omitempty"`
}

func (p precondition) MarshalJSON() ([]byte, error)     { return beside(p.facts, p.counts) }
func (p *precondition) UnmarshalJSON(body []byte) error { return apart(body, &p.facts, &p.counts) }
func (r recorded) MarshalJSON() ([]byte, error)         { return beside(r.signature, r.extra) }
func (r *recorded) UnmarshalJSON(body []byte) error     { return apart(body, &r.signature, &r.extra) }

// beside is one JSON object of the fields of a struct and the entries of a map. The struct wins.
func beside[V any](fields any, entries map[string]V) ([]byte, error) {
	object := map[string]any{}
	for key, value := range entries {
		object[key] = value
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	var known map[string]json.RawMessage
	if err := json.Unmarshal(body, &known); err != nil {
		return nil, err
	}
	for key, value := range known {
		object[key] = value
	}
	return json.Marshal(object)
}

// keys are the JSON names of a struct.
func keys(fields any) map[string]bool {
	names := map[string]bool{}
	of := reflect.TypeOf(fields).Elem()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// apart is the inverse of beside: what fields does not have goes into entries, nil if there is none.
func apart[V any](body []byte, fields any, entries *map[string]V) error {
	if err := json.Unmarshal(body, fields); err != nil {
		return err
	}
	known := keys(fields)
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return err
	}
	maps.DeleteFunc(object, func(key string, _ json.RawMessage) bool { return known[key] })
	if len(object) == 0 {
		return nil
	}
	*entries = map[string]V{}
	for key, body := range object {
		var value V
		if json.Unmarshal(body, &value) != nil {
			return unknownKey(key)
		}
		(*entries)[key] = value
	}
	return nil
}

// unknownKey is what encoding/json says of a key that a struct does not have.
func unknownKey(key string) error { return fmt.Errorf("json: unknown field %q", key) }

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

// encodeRow is the change that says what r says.
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
	c.Workers, c.Strangers = o.Members, o.Strangers
	c.Precondition = &precondition{counts: map[string]int{}, facts: facts{
		Version: o.Version, RecordVersion: o.RecordVersion, Pzxid: o.Pzxid, Live: o.Live, Classic: o.Classic,
		Companions: o.Companions, Foreign: o.Foreign, Problem: o.Problem, Lost: o.Lost, BeyondRepair: o.BeyondRepair,
	}}
	for _, count := range kind.Counts {
		c.Precondition.counts[count.Name] = o.Count(count.Name)
	}
	if rec := o.Record; rec != nil {
		c.Precondition.Generation = rec.Generation
		recordedKind := rec.Declaration.Kind().Name
		if recordedKind == kind.Name {
			recordedKind = ""
		}
		c.Recorded = &recorded{extra: rec.Extra, signature: signature{
			recordedKind, rec.Stack, rec.Home, rec.State, rec.By, rec.Applied, rec.Op, rec.Digest, rec.Edited(), rec.ACL,
		}}
		c.Change.Before, err = json.Marshal(rec.Declaration)
	}
	return c, err
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
	r.Old = &resource.Observed{
		Classic: pre.Classic, Companions: pre.Companions, Version: pre.Version, RecordVersion: pre.RecordVersion,
		Pzxid: pre.Pzxid, Live: pre.Live, Counts: pre.counts, Members: c.Workers, Strangers: c.Strangers,
		Foreign: pre.Foreign, Problem: pre.Problem, Lost: pre.Lost, BeyondRepair: pre.BeyondRepair,
	}
	for name := range pre.counts {
		if !slices.ContainsFunc(kind.Counts, func(k resource.Count) bool { return k.Name == name }) {
			return r, fmt.Errorf("precondition holds the unknown key %q", name)
		}
	}
	if rec := c.Recorded; rec != nil {
		r.Old.Record = &resource.Record{
			Stack: rec.Stack, Home: rec.Home, Generation: pre.Generation, State: rec.State, By: rec.By, Applied: rec.Applied,
			Op: rec.Op, Digest: rec.Digest, ACL: rec.ACL, Extra: rec.extra,
		}
		r.Old.Record.SetEdited(rec.Edited)
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

// decodeDeclaration reads before or after; nil is null.
func decodeDeclaration(kind resource.Kind, body json.RawMessage, at string) (resource.Declaration, error) {
	if len(body) == 0 || string(body) == "null" {
		return nil, nil
	}
	d, err := kind.Decode(body, at)
	if err != nil {
		return nil, err
	}
	// A record may hold what a newer muster wrote; a plan file holds what this one writes.
	again, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var is, known map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(body, &is), json.Unmarshal(again, &known)); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if known[key] == nil {
			return nil, unknownKey(key)
		}
	}
	return d, nil
}

// check says what in c cannot be: a row whose parts contradict each other, or that no plan of w would hold.
func (c change) check(r plan.Row, kind resource.Kind, w plan.Want) error {
	switch {
	case !slices.Contains(plan.Reasons(), r.Reason):
		return fmt.Errorf("action_reason %q is not known", r.Reason)
	case r.Old == nil && r.New == nil:
		return errors.New("it is neither declared nor observed")
	}
	if err := checkNames(r); err != nil {
		return err
	}
	is, err := encodeRow(r, kind)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"address", c.Address, is.Address}, {"name", c.Name, is.Name}, {"status", c.Status, is.Status},
		{"change.actions", c.Change.Actions, is.Change.Actions}, {"blocked_by", c.BlockedBy, is.BlockedBy},
	} {
		if got, want := fmt.Sprint(f.got), fmt.Sprint(f.want); got != want {
			return fmt.Errorf("%s is %q, which contradicts the row's facts: they say %q", f.name, got, want)
		}
	}
	// The file does not say which stacks may be taken over, so a row may have been made with or without.
	taking := w
	if r.Old != nil && r.Old.Record != nil {
		taking.TakeOver = []string{r.Old.Record.Stack}
	}
	if r.Reason != taking.Reason(r) && r.Reason != w.Reason(r) {
		return fmt.Errorf("action_reason %q contradicts the row's facts: they say %q", r.Reason, taking.Reason(r))
	}
	return nil
}

// checkNames refuses what could lead a commit to znodes that are none of the row's.
func checkNames(r plan.Row) error {
	if !r.Action().Changes() && r.New == nil {
		return nil // only shown
	}
	slash := strings.LastIndex(r.Path, "/") + 1
	root, name := strings.TrimSuffix(r.Path[:slash], "/"), r.Path[slash:]
	if err := cmp.Or(resource.CheckName(r.Kind().Name, name), resource.CheckRoot(root)); err != nil {
		return err
	}
	if r.New != nil && r.New.ID().Path() != r.Path {
		return fmt.Errorf("it declares %s and changes %s", r.New.ID().Path(), r.Path)
	}
	if r.Old == nil {
		return nil
	}
	if rec := r.Old.Record; rec != nil {
		if err := resource.CheckName("generation", rec.Generation); err != nil && r.Action().Changes() {
			return fmt.Errorf("generation %q cannot be: %w", rec.Generation, err)
		}
		if at := rec.Declaration.ID().Path(); at != r.Path {
			return fmt.Errorf("it observed %s and changes %s", at, r.Path)
		}
	}
	for _, c := range r.Old.Companions {
		if rest, ok := strings.CutPrefix(c, r.Path+"-"); !ok || strings.Contains(rest, "/") {
			return fmt.Errorf("%s is no companion of %s", c, r.Path)
		}
	}
	return nil
}
