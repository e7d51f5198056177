package resource

import (
	"maps"
	"slices"
)

// Declaration is one thing as it is declared, or as it was recorded. It encodes itself as one JSON object, which
// Kind.Decode reads back.
type Declaration interface {
	Kind() Kind
	ID() ID
	// Fields lists every compared field in a fixed order. It is the one list behind equality, the "8 -> 12" of a plan,
	// ignored drift and explain.
	Fields() []Field
	Policy() Policy
	// Judge says what o, which has a Record of this declaration and no problem, means.
	Judge(o *Observed) (Class, Status)
	// Health counts who works for it: "8 of 8 joined, 3 live, 5 completed".
	Health(o *Observed) string
	// Live says who is at work, as a reason to leave it alone: "5 workers are live".
	Live(o *Observed) string
	// Forgotten says what goes when o is deleted or replaced, and whether it is work that somebody may miss.
	Forgotten(o *Observed) (what string, work bool)
}

// Kind is what is known of all declarations of one kind.
type Kind struct {
	Name   string  // "job": the block in HCL, the type in a plan file, the folder of its records in ZooKeeper
	Member string  // what works for it: "worker"
	Counts []Count // what is counted of it, besides who is live
	// Statuses lists every status that one can have, in the order in which they are tried.
	Statuses []Status
	// Fields are the dotted names of everything that a declaration's JSON holds. A name that is not among them was written
	// by a newer muster, and is kept.
	Fields []string
	// Decode reads the JSON of a declaration that stands at a place ("jobs.hcl:29", or nowhere). What is absent has its
	// default. The error names what cannot be.
	Decode func(body []byte, at string) (Declaration, error)
}

// Count is one number that is read of a thing and must still hold when it is changed.
type Count struct {
	Name string // in Observed.Counts and in a plan file: "done"
	Word string // for people: "completed"
}

// ID is what a declaration is called.
type ID struct {
	Name string // of its znode, below Root
	Root string // absolute znode path
	// Address names the block (job.ingest["eu"]). It is recorded so that a person finds the source, and never compared:
	// renaming a block changes nothing.
	Address string
	At      string // where the block stands ("jobs.hcl:29"); neither recorded nor compared
}

// Path is the znode of the thing itself.
func (id ID) Path() string { return Join(id.Root, id.Name) }

// Policy is what of a declaration decides about changes to it.
type Policy struct {
	Protect     bool     // it is never deleted or replaced
	FailIfLive  bool     // a plan is blocked while members are live
	RemovesSelf bool     // it is gone once its work is done, so that its absence means nothing
	KeepsDone   bool     // once its work is done it stays as it is
	Grace       Duration // nobody must be live for this long before it may be deleted or replaced
}

// Field is one compared property, as users write it.
type Field struct {
	Name      string // "workers", "timeouts.join", "labels.team"
	Value     string // "8", "1m40s", "data"
	Immutable bool   // cannot change once a member has joined
	Usual     bool   // it has the value that it has if nothing is said
}

// Change is a field whose value differs between two declarations. Old or New is nil for a field that only one side has.
type Change struct {
	Name      string
	Old, New  *string
	Immutable bool
}

// Changes lists the fields in which b differs from a, in the order of b's fields.
func Changes(a, b Declaration) []Change {
	old := map[string]Field{}
	for _, f := range a.Fields() {
		old[f.Name] = f
	}
	var cs []Change
	for _, f := range b.Fields() {
		was, ok := old[f.Name]
		delete(old, f.Name)
		switch {
		case !ok:
			cs = append(cs, Change{f.Name, nil, &f.Value, f.Immutable})
		case was.Value != f.Value:
			cs = append(cs, Change{f.Name, &was.Value, &f.Value, f.Immutable})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		was := old[name]
		cs = append(cs, Change{Name: name, Old: &was.Value, Immutable: was.Immutable})
	}
	return cs
}
