package golden

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/spec"
)

// facts is what the section "observed" says about a path. The section is YAML: facts by path. A fact that is left out
// has its default: a path without facts is a job that was applied as it is declared and that nobody has joined. A path
// that is not listed does not exist.
type facts struct {
	// Record holds the fields of the recorded job, group or queue that differ from the declaration: {workers: 8, timeouts:
	// {stale: 2m}}. If it has labels, it has all of them. The record of one that is not declared has the defaults, and
	// that of a job needs workers.
	Record     map[string]any
	Kind       string         // of what is not declared: job, group or queue; default: job
	Stack      string         // that owns the job; default: that of the configuration
	State      resource.State // default: open
	Generation string
	ACL        []string
	Last       *job.Run // the last completed run
	Home       string   // of the stack; default: that of the configuration
	Edited     bool     // somebody changed the record: its digest does not verify

	Joined, Done int
	Held, Paused int                // duties of a group that somebody holds; that are paused, and nobody holds
	Results      []resource.Results // of the crons of a group that are failing
	Saved        []resource.Saved   // what members of a group have saved, by duty
	Queue        queue.Found        // what was counted of a queue
	Live         int                // workers; they are called 10.0.3.11:7000, 10.0.3.12:7000 and so on
	Names        []string           // of workers that are live and called otherwise
	Strangers    []string           // children of the job znode that are no workers
	Version      int32              // of the job znode
	Pzxid        int64

	// Lost are parts that somebody deleted or changed: record, reference, copy, gate, znode, generation, id, by, end,
	// barrier.
	Lost         []string
	BeyondRepair string `yaml:"beyond_repair"` // why not all of them can be put back

	// A path with one of these has no record, unless Record is given too.
	Classic bool
	Foreign string // what the znode is, if it is no job
	Problem string // why the job cannot be read

	Companions []string // of a classic job: full paths
	Unlisted   bool     // the path is a root that could not be listed; no other fact is read
}

// readObserved reads the section "observed" of a case whose configuration is c. No other file knows both the section
// and the types of a plan.
func readObserved(text string, c *spec.Config) (plan.State, error) {
	keys := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &keys); err != nil {
		return plan.State{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !strings.HasPrefix(key, "/") {
			return plan.State{}, fmt.Errorf("key %q is not the path of a znode", key)
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	said := map[string]facts{}
	if err := dec.Decode(&said); err != nil && !errors.Is(err, io.EOF) {
		return plan.State{}, err
	}
	have := plan.State{Ensemble: "e0c3b1", Found: map[string]resource.Observed{}}
	for _, at := range slices.Sorted(maps.Keys(said)) {
		if said[at].Unlisted {
			have.Unlisted = append(have.Unlisted, at)
			continue
		}
		o, err := said[at].observed(at, c)
		if err != nil {
			return plan.State{}, fmt.Errorf("%s: %w", at, err)
		}
		have.Found[at] = o
	}
	return have, nil
}

func (f facts) observed(at string, c *spec.Config) (resource.Observed, error) {
	o := resource.Observed{
		Version: f.Version, Pzxid: cmp.Or(f.Pzxid, 8589934615), Counts: job.Counts(f.Joined, f.Done), Members: f.Names,
		Strangers: f.Strangers, Saved: f.Saved, Classic: f.Classic, Companions: f.Companions, Foreign: f.Foreign != "",
		Problem: cmp.Or(f.Foreign, f.Problem),
	}
	for _, part := range f.Lost {
		o.Lost = append(o.Lost, resource.Part(part))
	}
	o.BeyondRepair = f.BeyondRepair
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
		o.Counts, o.Results = group.Counts(f.Held, f.Paused, len(f.Results)), f.Results
	case queue.KindName:
		o.Counts = f.Queue.Counts()
	}
	o.Record = &resource.Record{
		Stack: cmp.Or(f.Stack, c.Stack), Home: f.Home, Generation: cmp.Or(f.Generation, "4f1c9a02"),
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

// declaration returns what is recorded: of the kind that is said, or else of what is declared there.
func (f facts) declaration(at string, c *spec.Config) (resource.Declaration, error) {
	kind := cmp.Or(f.Kind, job.KindName)
	if i := slices.IndexFunc(c.Declared, func(d resource.Declaration) bool { return d.ID().Path() == at }); i >= 0 {
		kind = cmp.Or(f.Kind, c.Declared[i].Kind().Name)
	}
	switch kind {
	case job.KindName:
		return f.job(at, c)
	case group.KindName:
		g := group.Default()
		g.Root, g.Name, g.Address = path.Dir(at), path.Base(at), "group."+path.Base(at)
		return f.merged(g, at, c)
	case queue.KindName:
		q := queue.Default()
		q.Root, q.Name, q.Address = path.Dir(at), path.Base(at), "queue."+path.Base(at)
		q.Redis = "redis://redis-1"
		return f.merged(q, at, c)
	}
	return nil, fmt.Errorf("the kind %q is not known", kind)
}

// job returns the recorded job.
func (f facts) job(at string, c *spec.Config) (job.Job, error) {
	j := job.Default()
	j.Root, j.Name = path.Dir(at), path.Base(at)
	j.Address = "job." + j.Name
	if i := slices.IndexFunc(spec.Of[job.Job](c), func(d job.Job) bool { return d.Path() == at }); i >= 0 {
		j = spec.Of[job.Job](c)[i]
		j.At = "" // which is not recorded
		j.Labels = maps.Clone(j.Labels)
	}
	if _, ok := f.Record["labels"]; ok {
		j.Labels = nil
	}
	body, err := json.Marshal(f.Record)
	if err != nil {
		return j, err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return j, err
	}
	if j.Path() != at {
		return j, fmt.Errorf("its path is %s", j.Path())
	}
	return j, j.Check()
}
