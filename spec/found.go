package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
)

// Found says what stands at a path in ZooKeeper, for tests of configurations. A fact that is left out has its default:
// nothing said is a job that was applied as it is declared and that nobody has joined.
type Found struct {
	// Record holds the fields of the recorded job, group or queue that differ from the declaration: {workers: 8,
	// timeouts: {stale: 2m}}; null takes a part out. If it has labels, it has all of them. What is not declared has the
	// defaults, and a job needs workers.
	Record     map[string]any `json:"record"`
	Kind       string         `json:"kind"`  // of what is not declared: job, group or queue; default: job
	Stack      string         `json:"stack"` // that owns it; default: that of the configuration
	State      resource.State `json:"state"` // default: open
	Generation string         `json:"generation"`
	ACL        []string       `json:"acl"`
	Last       *job.Run       `json:"last"`   // the last completed run
	Home       string         `json:"home"`   // of the stack; default: that of the configuration
	Edited     bool           `json:"edited"` // somebody changed the record: its digest does not verify

	Joined     int              `json:"joined"`
	Done       int              `json:"done"`
	Held       int              `json:"held"`       // duties of a group that somebody holds
	Paused     int              `json:"paused"`     // duties that are paused, and nobody holds
	Unassigned bool             `json:"unassigned"` // no live member of a group assigns duties
	Results    []FoundResults   `json:"results"`    // of the crons of a group that are failing
	Saved      []resource.Saved `json:"saved"`      // what members of a group have saved, by duty
	Queue      queue.Found      `json:"queue"`      // what was counted of a queue
	Live       int              `json:"live"`       // workers; they are called 10.0.3.11:7000, 10.0.3.12:7000 and so on
	Names      []string         `json:"names"`      // of workers that are live and called otherwise
	Strangers  []string         `json:"strangers"`  // children of the job znode that are no workers
	Version    int32            `json:"version"`    // of the job znode
	Pzxid      int64            `json:"pzxid"`

	// Lost are parts that somebody deleted or changed: record, reference, copy, gate, znode, generation, id, by, end,
	// barrier.
	Lost         []resource.Part `json:"lost"`
	BeyondRepair string          `json:"beyond_repair"` // why not all of them can be put back

	// A path with one of these has no record, unless Record is given too.
	Classic bool   `json:"classic"`
	Foreign string `json:"foreign"` // what the znode is, if it is no job
	Problem string `json:"problem"` // why the job cannot be read

	Companions []string `json:"companions"` // of a classic job: full paths
}

// maxCounted is how many of a thing a test may say there are.
const maxCounted = 1_000_000

// FoundResults is how the runs of the cron of a section went: "cron.report".
type FoundResults struct {
	Section string `json:"section"`
	resource.Results
}

// DecodeFound reads the JSON of a Found. The error names a field that it does not have.
func DecodeFound(body []byte) (f Found, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&f); err != nil {
		return f, errors.New(strings.TrimPrefix(resource.PlainJSON(err).Error(), "json: "))
	}
	if f.State != "" && f.State != resource.StateOpen && f.State != resource.StateTerminating {
		return f, fmt.Errorf("state %q is neither %s nor %s", f.State, resource.StateOpen, resource.StateTerminating)
	}
	q := f.Queue
	for _, n := range []int{
		f.Joined, f.Done, f.Live, f.Held, f.Paused,
		q.Executors, q.Watchers, q.Batches, q.Waiting, q.Completed, q.Lost, q.Failed,
	} {
		if n < 0 || n > maxCounted {
			return f, fmt.Errorf("%d is not between 0 and %d", n, maxCounted)
		}
	}
	return f, nil
}

// Observed is what a reader finds at a path, if f is there and c was applied.
func (f Found) Observed(at string, c *Config) (resource.Observed, error) {
	o := resource.Observed{
		Version: f.Version, Pzxid: cmp.Or(f.Pzxid, 8589934615), Counts: job.Counts(f.Joined, f.Done), Members: f.Names,
		Strangers: f.Strangers, Saved: f.Saved, Classic: f.Classic, Companions: f.Companions, Foreign: f.Foreign != "",
		Problem: cmp.Or(f.Foreign, f.Problem), Lost: f.Lost, BeyondRepair: f.BeyondRepair,
	}
	for len(o.Members) < f.Live {
		o.Members = append(o.Members, fmt.Sprintf("10.0.3.%d:7000", 11+len(o.Members)))
	}
	o.Live = len(o.Members) + len(o.Strangers)
	unknown := f.BeyondRepair != "" && (!o.Has(resource.PartRecord) || !o.Has(resource.PartReference))
	if f.Record == nil && (o.Classic || o.Problem != "" || unknown) {
		return o, nil
	}
	d, err := f.declaration(at, c)
	if err != nil {
		return o, fmt.Errorf("record: %w", err)
	}
	switch d.Kind().Name {
	case group.KindName:
		o.Counts = group.Counts(f.Held, f.Paused, len(f.Results))
		if f.Unassigned {
			group.WithoutAssigner(o.Counts)
		}
		for _, r := range f.Results {
			r.Results.Section = r.Section
			o.Results = append(o.Results, r.Results)
		}
	case queue.KindName:
		o.Counts = f.Queue.Counts()
	}
	o.Record = &resource.Record{
		Stack: cmp.Or(f.Stack, c.Stack), Home: cmp.Or(f.Home, c.Home), Generation: cmp.Or(f.Generation, "4f1c9a02"),
		State: cmp.Or(f.State, resource.StateOpen), By: "ann@deploy-1", Applied: "2026-11-20T21:00:00Z", Op: "b7d20e51",
		ACL: f.ACL,
	}
	if err := o.Record.Declare(d); err != nil {
		return o, err
	}
	if f.Last != nil {
		err = job.SetLastRun(o.Record, *f.Last)
	}
	if f.Edited {
		o.Record.Digest = strings.Repeat("0", len(o.Record.Digest))
	}
	return o, err
}

// declaration is what is recorded: what is declared there, or else the default of its kind, with what differs.
func (f Found) declaration(at string, c *Config) (resource.Declaration, error) {
	declared := slices.IndexFunc(c.Declared, func(d resource.Declaration) bool { return d.ID().Path() == at })
	name := cmp.Or(f.Kind, job.KindName)
	if declared >= 0 {
		name = cmp.Or(f.Kind, c.Declared[declared].Kind().Name)
	}
	for _, k := range kinds() {
		if k.block() != name {
			continue
		}
		d := k.usual(resource.Common{Root: path.Dir(at), Name: path.Base(at), Address: name + "." + path.Base(at)})
		if declared >= 0 && c.Declared[declared].Kind().Name == name {
			d = c.Declared[declared]
		}
		if q, ok := d.(queue.Queue); ok && q.Redis == "" {
			q.Redis = "redis://redis-1"
			d = q
		}
		d, err := k.merged(d, f.Record)
		if err == nil && d.ID().Path() != at {
			err = fmt.Errorf("its path is %s", d.ID().Path())
		}
		return d, err
	}
	return nil, fmt.Errorf("the kind %q is not known", name)
}

// usual is a declaration with all defaults.
func (k kindOf[T, P]) usual(c resource.Common) resource.Declaration {
	t := k.initial
	*P(&t).CommonRef() = c
	return t
}

// merged is d, with what differs in its JSON.
func (k kindOf[T, P]) merged(d resource.Declaration, differs map[string]any) (resource.Declaration, error) {
	body, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	if err := k.fields(differs, ""); err != nil {
		return nil, err
	}
	if differs["labels"] != nil {
		delete(object, "labels")
	}
	mergeObjects(object, differs)
	if body, err = json.Marshal(object); err != nil {
		return nil, err
	}
	return d.Kind().Decode(body, "")
}

// mergeObjects puts what differs into a JSON object.
func mergeObjects(into, differs map[string]any) {
	for key, value := range differs {
		inner, ok := into[key].(map[string]any)
		nested, is := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok && is:
			mergeObjects(inner, nested)
		default:
			into[key] = value
		}
	}
}

// fields returns an error that names a key which no declaration of the kind has. section is where the keys stand, with
// a dot at its end.
func (k kindOf[T, P]) fields(object map[string]any, section string) error {
	known := append([]string{"name", "root", "address", "labels"}, k.names()...)
	for _, p := range k.parts.types {
		label := "."
		if p.schema.label != "" {
			label = ".*."
		}
		for _, name := range p.schema.args {
			known = append(known, p.schema.name+label+name)
		}
	}
	for _, key := range sortedKeys(object) {
		name := section + key
		named := func(p part[T]) bool { return p.schema.label != "" && p.schema.name+"." == section }
		if slices.ContainsFunc(k.parts.types, named) {
			name = section + "*"
		}
		nested, isObject := object[key].(map[string]any)
		within := func(f string) bool { return strings.HasPrefix(f, name+".") }
		switch {
		case !slices.Contains(known, name) && !((isObject || object[key] == nil) && slices.ContainsFunc(known, within)):
			return fmt.Errorf("unknown field %q", key)
		case isObject && name != "labels":
			if err := k.fields(nested, name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}
