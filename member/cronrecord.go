package member

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// RunRecord is what is recorded of a run, of a range of ticks that did not run, or of a run that an operator asked for.
type RunRecord struct {
	Tick  time.Time // of a range: the last one. Zero: an operator asked for the run
	Asked int64     // the number of that request, from 1; 0: it is a tick
	znode.TickRecord
}

// Runs returns what is recorded of a cron duty, the newest first, at most n. What an operator asked for comes where it
// began, or was asked for. The duty needs no holder. A record that cannot be read has no state.
func Runs(ctx context.Context, s zkstate.Source, root, generation, duty string, n int) ([]RunRecord, error) {
	var paths []string
	for _, folder := range []string{znode.Ticks(root, generation, duty), znode.Nows(root, generation, duty)} {
		names, _, err := s.Children(ctx, folder)
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return nil, err
		}
		newest := recordPaths(folder, names)
		slices.SortFunc(newest, func(a, b string) int { return cmp.Compare(b, a) }) // both kinds of names sort by age
		paths = append(paths, newest[:min(n, len(newest))]...)
	}
	found, err := readTicks(ctx, s, paths)
	if err != nil {
		return nil, err
	}
	var runs []RunRecord
	for i, path := range paths {
		if entry := found[i]; entry != nil {
			runs = append(runs, recordAt(path, *entry))
		}
	}
	slices.SortStableFunc(runs, func(a, b RunRecord) int {
		return cmp.Or(b.when().Compare(a.when()), cmp.Compare(b.Asked, a.Asked))
	})
	return runs[:min(n, len(runs))], nil
}

func recordAt(path string, r znode.TickRecord) RunRecord {
	tick, asked := tickOf(path)
	return RunRecord{tick, asked, r}
}

// when orders records: when the tick was, or when a run began, or was asked for.
func (r RunRecord) when() time.Time {
	if r.Asked == 0 {
		return r.Tick
	}
	return cmp.Or(r.Started, r.TickRecord.Asked)
}

// What is shown of the crons of one group together: runs, of each cron at least fewestRuns, and bytes of output.
const (
	maxRuns    = 2000
	fewestRuns = 5
	maxOutput  = 1 << 20
)

// AllRuns is at least as many runs as there are of one cron: those that it keeps, and those that wait.
const AllRuns = 500

// FillRuns adds the last runs of the crons among these duties, at most n of each, and of many crons fewer; and what the
// newest of them wrote. rec is the Record of their group.
func FillRuns(ctx context.Context, s zkstate.Source, rec *resource.Record, duties []view.Duty, n int) error {
	const atOnce = 64
	var crons []*view.Duty
	for i := range duties {
		if duties[i].Type == group.Cron {
			crons = append(crons, &duties[i])
		}
	}
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(atOnce)
	for _, d := range crons {
		reading.Go(func() error {
			n := min(n, max(fewestRuns, maxRuns/len(crons)))
			runs, err := Runs(ctx, s, rec.Declaration.ID().Root, rec.Generation, d.Name, n)
			left := maxOutput / len(crons)
			for _, r := range runs {
				shown := r.view()
				if left -= len(shown.Output); left < 0 {
					shown.Output, shown.LeftOut = "", shown.Output != ""
				}
				d.Runs = append(d.Runs, shown)
			}
			return err
		})
	}
	return reading.Wait()
}

func (r RunRecord) view() view.Run {
	given := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return view.Run{
		Tick: given(r.Tick), Asked: r.Asked, State: string(cmp.Or(r.State, "unreadable")), By: r.By,
		Started: given(r.Started), Ended: given(r.Ended), Exit: r.Exit, Attempt: r.Attempt, AskedBy: r.AskedBy,
		Because: r.Because, Count: r.Count, More: r.More, Output: r.Tail,
	}
}

// readTicks reads records; nil for one that is gone. One that cannot be read is the zero record.
func readTicks(ctx context.Context, s zkstate.Source, paths []string) ([]*znode.TickRecord, error) {
	return zkstate.ForEach(ctx, paths, func(ctx context.Context, path string) (*znode.TickRecord, error) {
		body, _, there, err := zkconn.IfThere(s.Get(ctx, path))
		if err != nil || !there {
			return nil, err
		}
		record, err := znode.Decode[znode.TickRecord](body)
		if err != nil {
			record = znode.TickRecord{} // written by hand; it is forgotten as one that is over
		}
		return &record, nil
	})
}

// change is a part of a decision's transaction. The record is nil if path is the cursor or the folder, or is deleted.
// Only the assigner writes here besides the holder, and only the cursor, so all else is set and deleted whatever its
// version.
type change struct {
	op      zkconn.Op
	path    string
	record  *znode.TickRecord
	results *znode.TickResults // of the folder
}

// maxPruned is how many records one transaction deletes at most.
const maxPruned = 50

func (c *cron) load() error {
	if err := c.loadCursor(); err != nil {
		return err
	}
	paths, err := c.list()
	if err != nil {
		return err
	}
	found, err := readTicks(c.h.ctx, c.m.session, paths)
	if err != nil {
		return err
	}
	body, _, _, err := zkconn.IfThere(c.m.session.Get(c.h.ctx, znode.Ticks(c.m.root, c.m.Generation, c.h.Duty)))
	if err != nil {
		return err
	}
	c.results, _ = znode.DecodeOrZero[znode.TickResults](body) // written by hand: it is counted anew
	c.records, c.state.Runs, c.asked = map[string]znode.TickRecord{}, nil, nil
	for i, path := range paths {
		if found[i] == nil {
			continue
		}
		c.records[path] = *found[i]
		tick, asked := tickOf(path)
		if tick.After(c.state.Cursor.Tick) { // somebody wrote the cursor by hand
			c.state.Cursor.Tick = tick
		}
		switch found[i].State {
		case znode.TickAsked:
			c.asked = append(c.asked, asked)
		case znode.TickWaiting, znode.TickRunning:
			c.state.Runs = append(c.state.Runs, ticks.Run{
				Tick: tick, Asked: asked, Attempt: found[i].Attempt, Running: found[i].State == znode.TickRunning,
				Since: found[i].Since.UTC(),
			})
		}
	}
	slices.Sort(c.asked)
	c.lookAfter()
	return nil
}

// lookAfter stops the run of this process if the records do not say any more that it goes on: somebody wrote by hand.
func (c *cron) lookAfter() {
	goesOn := func(r ticks.Run) bool {
		return r.Running && r.Is(c.running.run) && r.Attempt == c.running.run.Attempt
	}
	if c.running != nil && c.ended == nil && !slices.ContainsFunc(c.state.Runs, goesOn) {
		c.abandon()
		c.running = nil
	}
}

// loadCursor reads the cursor. One that cannot be read is as one of another schedule.
func (c *cron) loadCursor() error {
	c.cursor, c.state.Cursor = -1, ticks.Cursor{}
	body, stat, there, err := zkconn.IfThere(c.m.session.Get(c.h.ctx, c.cursorPath()))
	if err != nil || !there {
		return err
	}
	c.cursor = stat.Version
	if cursor, err := znode.Decode[znode.TickCursor](body); err == nil {
		c.state.Cursor = ticks.Cursor{Tick: cursor.Tick.UTC(), Digest: cursor.Digest}
	}
	return nil
}

// list returns the paths of all records, and watches for requests. It makes the folders if they are not there.
func (c *cron) list() ([]string, error) {
	root, g, s := c.m.root, c.m.Generation, c.m.session
	folder, nows := znode.Ticks(root, g, c.h.Duty), znode.Nows(root, g, c.h.Duty)
	for {
		names, _, err := s.Children(c.h.ctx, folder)
		var askedNames []string
		if err == nil {
			askedNames, _, c.asks, err = s.ChildrenW(c.h.ctx, nows)
		}
		if errors.Is(err, zkconn.ErrNoNode) {
			if err := c.makeFolders(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return append(recordPaths(folder, names), recordPaths(nows, askedNames)...), nil
	}
}

// recordPaths are the paths of the records with these names. Other znodes are left out.
func recordPaths(folder string, names []string) (paths []string) {
	for _, name := range names {
		_, noTick := znode.TickTime(name)
		if _, noNow := znode.NowNumber(name); noTick == nil || noNow == nil {
			paths = append(paths, folder+"/"+name)
		}
	}
	return paths
}

// tickOf reads what identifies a run from the path of its record.
func tickOf(path string) (tick time.Time, asked int64) {
	if n, err := znode.NowNumber(path); err == nil {
		return time.Time{}, n
	}
	tick, _ = znode.TickTime(path)
	return tick, 0
}

// committed reports whether what was read is what d decided.
func (c *cron) committed(d ticks.Decision) bool {
	order := func(a, b ticks.Run) int { return cmp.Or(cmp.Compare(a.Asked, b.Asked), a.Tick.Compare(b.Tick)) }
	have := slices.SortedFunc(slices.Values(c.state.Runs), order)
	want := slices.SortedFunc(slices.Values(d.State.Runs), order)
	return slices.Equal(have, want) && !c.state.Cursor.Tick.Before(d.State.Cursor.Tick)
}

func (c *cron) cursorPath() string { return znode.Cursor(c.m.root, c.m.Generation, c.h.Duty) }

func (c *cron) pathOf(r ticks.Run) string {
	if r.Asked != 0 {
		return znode.Now(c.m.root, c.m.Generation, c.h.Duty, r.Asked)
	}
	return znode.Tick(c.m.root, c.m.Generation, c.h.Duty, r.Tick)
}

// changes is what a decision writes: first the cursor.
func (c *cron) changes(d ticks.Decision) ([]change, error) {
	var all []change
	if d.State.Cursor != c.state.Cursor || c.cursor < 0 {
		body, err := znode.Encode(znode.TickCursor(d.State.Cursor))
		if err != nil {
			return nil, err
		}
		at := c.cursorPath()
		all = append(all, change{path: at, op: c.h.setOrCreate(c.cursor >= 0, at, body, c.cursor)})
	}
	records, results := map[string]znode.TickRecord{}, c.results
	for _, r := range d.Records {
		record := c.record(r)
		records[c.pathOf(r.Run)] = record
		results.Add(record.State, 1, record.Ended)
	}
	for state, r := range map[znode.TickState]ticks.Range{znode.TickMissed: d.Missed, znode.TickSkipped: d.Skipped} {
		if r.Count > 0 {
			records[c.pathOf(ticks.Run{Tick: r.Last})] = znode.TickRecord{
				State: state, First: r.First, Last: r.Last, Count: r.Count, More: r.More,
			}
			results.Add(state, r.Count, r.Last)
		}
	}
	if results != c.results {
		body, err := znode.Encode(results)
		if err != nil {
			return nil, err
		}
		at := znode.Ticks(c.m.root, c.m.Generation, c.h.Duty)
		all = append(all, change{path: at, op: zkconn.SetOp(at, body, -1), results: &results})
	}
	for _, path := range slices.Sorted(maps.Keys(records)) {
		record := records[path]
		body, err := znode.Encode(record)
		if err != nil {
			return nil, err
		}
		_, there := c.records[path]
		all = append(all, change{path: path, record: &record, op: c.h.setOrCreate(there, path, body, -1)})
	}
	if !d.Release {
		all = append(all, c.prune(records)...)
	}
	return all, nil
}

// holderLost is why a run of an earlier holder is lost, or is repeated.
const holderLost = "its holder was lost"

func (c *cron) record(r ticks.Record) znode.TickRecord {
	record := c.records[c.pathOf(r.Run)]
	record.State, record.Attempt, record.Since = znode.TickState(r.Outcome), r.Run.Attempt, r.Run.Since
	switch {
	case r.Outcome == ticks.Running:
		record = znode.TickRecord{
			State: znode.TickRunning, By: c.m.Identity, Epoch: c.h.Epoch, Attempt: r.Run.Attempt, Started: r.Run.Since,
			Since: r.Run.Since, Asked: record.Asked, AskedBy: record.AskedBy, Nonce: record.Nonce,
		}
	case c.ended != nil && r.Run.Is(c.running.run):
		record.Ended, record.Tail, record.Because = c.ended.at.UTC().Round(0), znode.CutTail(c.ended.Tail), c.ended.Because
		if c.ended.Result != ticks.NotStarted && c.ended.Exit != NoExit {
			exit := c.ended.Exit
			record.Exit = &exit
		}
	case !c.taken && !r.New && r.Run.Attempt > 0:
		record.Because = holderLost
	}
	return record
}

// prune deletes the oldest records that are over, if there are more than the duty keeps: of runs, and as many of ranges
// of ticks that did not run. records are those that this decision writes.
func (c *cron) prune(records map[string]znode.TickRecord) []change {
	all := maps.Clone(c.records)
	maps.Copy(all, records)
	var over [2][]string
	for path, r := range all {
		if !r.Final() {
			continue
		}
		if r.Range() || r.State == "" {
			over[1] = append(over[1], path)
		} else {
			over[0] = append(over[0], path)
		}
	}
	var changes []change
	for _, paths := range over {
		slices.SortFunc(paths, func(a, b string) int {
			return cmp.Or(recordAt(a, all[a]).when().Compare(recordAt(b, all[b]).when()), cmp.Compare(a, b))
		})
		for _, path := range paths[:max(0, len(paths)-c.duty.Keep)] {
			_, there := c.records[path]
			if _, now := records[path]; there && !now && len(changes) < maxPruned {
				changes = append(changes, change{path: path, op: zkconn.DeleteOp(path, -1)})
			}
		}
	}
	return changes
}
