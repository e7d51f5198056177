// Package resource holds what declared resources of all kinds have in common: their names, the fields that are
// compared, what was found of them in ZooKeeper, and the Record that ZooKeeper keeps of them.
//
// A kind (such as package job) provides a Declaration, which says what the facts about a resource mean. Code that
// decides on an action looks at the Class and the Policy, never at the kind. The package holds plain data and rules
// about it; it reads no file and talks to no server.
package resource

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Declaration is one resource as HCL declares it or as a Record keeps it. It encodes itself as one JSON object, which
// Kind.Decode reads back.
type Declaration interface {
	Kind() Kind
	ID() Common
	// Fields lists every compared field in a fixed order. Equality, the "8 -> 12" of a plan, ignored drift and explain
	// all use this list.
	Fields() []Field
	Policy() Policy
	// Classify returns the class and the status of o, which must be readable, with a Record that holds this declaration.
	Classify(o *Observed) (Class, Status)
	// Health counts the members: "8 of 8 joined, 3 live, 5 completed".
	Health(o *Observed) string
	// LiveText counts the live members, as a reason to leave the resource alone: "5 workers are live".
	LiveText(o *Observed) string
	// WouldBeLost says what is lost when o is deleted or replaced: "4 of 4, none live"; empty if nobody joined. someDone
	// reports whether some member has completed its work.
	WouldBeLost(o *Observed) (what string, someDone bool)
	// Check returns an error that starts with the JSON name of the first invalid value, or nil.
	Check() error
	LabelMap() map[string]string // its labels
}

// Kind holds what all declarations of one kind have in common.
type Kind struct {
	Name   string  // "job": the block in HCL, the type in a plan file, the folder of its Records in ZooKeeper
	Member string  // what a member is called: "worker"
	Counts []Count // what is counted, besides the live members
	// Statuses lists every status that a resource of this kind can have, in the order in which they are tried. KindOf puts
	// those of all kinds before those of the kind.
	Statuses []Status
	// Classic reports whether workers of the classic controller make such resources too.
	Classic bool
	// Unfinished is what must have ended before a resource is deleted or replaced; zero: nothing.
	Unfinished Unfinished
	// Absent is what a degraded resource lacks, and status names: "the missing workers".
	Absent string
	// Formats is the highest format that a Record of this kind can have, see Formatted; zero: 1.
	Formats int
	// Decode reads the JSON of a declaration. at is its place in the source ("jobs.hcl:29") or empty. What is absent
	// gets its default. The error names the field that is invalid.
	Decode func(body []byte, at string) (Declaration, error)
}

// Count is one number that is read of a resource. It must be the same when the resource is deleted or replaced.
type Count struct {
	Name string // in Observed.Counts and in a plan file: "done"
	Word string // for people: "completed"
}

// Unfinished is what a kind's resources have to do, such as the batches of a queue.
type Unfinished struct {
	Count     string // the name of the count of what is unfinished
	One, Many string // what it is called: "batch", "batches"
}

// Policy is the part of a declaration that decides which changes are allowed.
type Policy struct {
	Protect     bool     // never delete or replace it
	FailIfLive  bool     // block the plan while members are live
	RemovesSelf bool     // it deletes itself when its work is done; its absence is then no drift
	KeepsDone   bool     // keep it as it is when its work is done
	Grace       Duration // it is deleted or replaced only after nobody was live for this long
	// InPlace: it has no runs; its members come and go, and may save data in its generation. So every damage is mended
	// in place, and one that was terminated is opened again. A new generation replaces it only if an immutable field
	// changes.
	InPlace bool
}

// Field is one compared property, as users write it.
type Field struct {
	Name      string // "workers", "timeouts.join", "labels.team"
	Value     string // "8", "1m40s", "data"
	Immutable bool   // cannot change once a member has joined
	IsDefault bool   // Value is the default
}

// Change is a field whose value differs between two declarations. Old or New is nil for a field that only one side has.
// Its JSON is that of the findings of drift, and of explain.
type Change struct {
	Name      string  `json:"field"`
	Old       *string `json:"recorded"`
	New       *string `json:"declared"`
	Immutable bool    `json:"-"`
}

// Changes lists the fields in which b differs from a, in the order of b's fields, then of a's. A field that only one of
// them has differs unless it has its default there.
func Changes(a, b Declaration) []Change {
	before, after := a.Fields(), b.Fields()
	if slices.Equal(before, after) {
		return nil
	}
	old := map[string]Field{}
	for _, f := range before {
		old[f.Name] = f
	}
	var cs []Change
	for _, f := range after {
		was, ok := old[f.Name]
		delete(old, f.Name)
		switch {
		case !ok && f.IsDefault:
		case !ok:
			cs = append(cs, Change{f.Name, nil, &f.Value, f.Immutable})
		case was.Value != f.Value:
			cs = append(cs, Change{f.Name, &was.Value, &f.Value, f.Immutable})
		}
	}
	for _, was := range before {
		if _, gone := old[was.Name]; gone && !was.IsDefault {
			cs = append(cs, Change{Name: was.Name, Old: &was.Value, Immutable: was.Immutable})
		}
	}
	return cs
}

// Formatted is a Declaration of a kind whose Records have more than one format. A muster or a worker that does not know
// a format leaves the resource alone.
type Formatted interface {
	Format() int // of the Record: 2 or more if the declaration uses what the format before does not have
}

// FormatOf is the format of a Record that declares d.
func FormatOf(d Declaration) int {
	if f, ok := d.(Formatted); ok {
		return f.Format()
	}
	return 1
}

// Common is what every declaration begins with. The declaration of a kind embeds it.
type Common struct {
	Name string `json:"name"` // of the znode, below Root
	Root string `json:"root"` // absolute znode path
	// Address names the block (job.ingest["eu"]). The Record keeps it, so that a person finds the source. It is never
	// compared: renaming a block changes nothing.
	Address string `json:"address,omitempty"`
	At      string `json:"-"` // place of the block ("jobs.hcl:29"); neither recorded nor compared
}

// Labelled is what every declaration ends with: the order of its JSON is part of the digest of its Record.
type Labelled struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// InPlace has the fields with which a declaration ends whose kind has no runs: its members come and go.
type InPlace struct {
	Timeouts  Timeouts  `json:"timeouts"`
	Lifecycle Lifecycle `json:"lifecycle"`
	Labelled
}

// Timeouts of an InPlace. Members read them again whenever the Record changes, except Session, which they keep.
type Timeouts struct {
	Session Duration `json:"session"` // a crashed member counts as live for this long
	Join    Duration `json:"join"`    // a member waits this long for the resource
	Drain   Duration `json:"drain"`   // a command that is stopped gets TERM, and KILL after this
	Stale   Duration `json:"stale"`   // apply deletes only after nobody was live for this long
}

// Lifecycle says whether the resource may be deleted.
type Lifecycle struct {
	Protect bool `json:"protect"` // never deleted
}

func (s InPlace) Policy() Policy {
	return Policy{Protect: s.Lifecycle.Protect, Grace: s.Timeouts.Stale, InPlace: true}
}

// JoinTimeout is how long a member waits for the resource.
func (s InPlace) JoinTimeout() time.Duration { return time.Duration(s.Timeouts.Join) }

// InPlaceProperties are the properties of an InPlace. kind and member are what the resource and its members are
// called; drained is which command is stopped.
func InPlaceProperties[T any](kind, member, drained string, of func(*T) *InPlace) []Property[T] {
	return []Property[T]{
		SessionOf("10s", "a crashed "+member+" is gone after this",
			func(t *T) *Duration { return &of(t).Timeouts.Session }),
		DurationOf("timeouts.join", "100s", "how long a "+member+" waits for the "+kind,
			func(t *T) *Duration { return &of(t).Timeouts.Join }),
		DurationOf("timeouts.drain", "30s", drained+" gets TERM, and KILL after this",
			func(t *T) *Duration { return &of(t).Timeouts.Drain }),
		DurationOf("timeouts.stale", "30s", "how long nobody is live before apply may delete",
			func(t *T) *Duration { return &of(t).Timeouts.Stale }),
		{
			Name: "lifecycle.protect", Doc: "never delete the " + kind, Type: TypeBool, Default: "false",
			Ref: func(t *T) any { return &of(t).Lifecycle.Protect },
		},
	}
}

func (c Common) ID() Common { return c }

// Path is the path of the resource's own znode.
func (c Common) Path() string { return Join(c.Root, c.Name) }

func (c *Common) CommonRef() *Common { return c }

func (l *Labelled) LabelsRef() *Labelled { return l }

func (l Labelled) LabelMap() map[string]string { return l.Labels }

// Embeds is a pointer to a declaration that embeds Common and Labelled.
type Embeds[T any] interface {
	*T
	CommonRef() *Common
	LabelsRef() *Labelled
}

// PlainJSON is an error of decoding JSON, in words for who wrote it.
func PlainJSON(err error) error {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s does not fit there: %s", cmp.Or(mismatch.Field, "it"), mismatch.Value)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON, at byte %d", syntax.Offset)
	}
	if at, bad := errors.AsType[*time.ParseError](err); bad {
		return fmt.Errorf("%s is no time as in RFC 3339", at.Value)
	}
	if strings.HasPrefix(err.Error(), "Time.UnmarshalJSON") {
		return errors.New("a time in it is no string")
	}
	return err
}

// KindOf completes k, whose declarations are values of type T with these properties.
func KindOf[T Declaration, P Embeds[T]](k Kind, ps []Property[T]) Kind {
	k.Statuses = append([]Status{
		StatusUnreadable, StatusForeign, StatusDamaged, StatusMissing, StatusTerminating,
	}, k.Statuses...)
	k.Decode = func(body []byte, at string) (Declaration, error) {
		t := Default[T, P](ps)
		P(&t).CommonRef().Root = "" // it has no default here
		err := json.Unmarshal(body, &t)
		if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			for f := mismatch.Field; f != "" && f[0] <= 'Z'; mismatch.Field = f { // an embedded struct is no field
				_, f, _ = strings.Cut(f, ".")
			}
		}
		if err != nil {
			return nil, PlainJSON(err)
		}
		P(&t).CommonRef().At = at
		return t, t.Check()
	}
	return k
}

// Default is a declaration with all defaults. It has no name.
func Default[T any, P Embeds[T]](ps []Property[T]) T {
	var t T
	P(&t).CommonRef().Root = DefaultRoot
	SetDefaults(ps, &t)
	return t
}

// Of is what r declares; the zero T if r is nil or declares another kind.
func Of[T Declaration](r *Record) (t T) {
	if r != nil {
		t, _ = r.Declaration.(T)
	}
	return t
}

// CheckDeclared is the Check of a kind whose values do not depend on each other. It is for what is read back from
// ZooKeeper or a plan file. Package spec checks HCL itself, and reports the place.
func CheckDeclared[T Declaration, P Embeds[T]](ps []Property[T], t T) error {
	c := P(&t).CommonRef()
	return cmp.Or(InField("name", CheckName(t.Kind().Name, c.Name)), InField("root", CheckRoot(c.Root)), Check(ps, &t))
}

// DeclaredFields lists the values in t in the order of the table, then others, then its labels, sorted.
func DeclaredFields[T any, P Embeds[T]](ps []Property[T], t T, others ...Field) []Field {
	fs := append(FieldsOf(ps, &t), others...)
	labels := P(&t).LabelsRef().Labels
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		fs = append(fs, Field{Name: "labels." + k, Value: labels[k]})
	}
	return fs
}
