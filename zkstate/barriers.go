package zkstate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Round is a round of a barrier that is under way: somebody has arrived, and it is neither released nor aborted.
type Round struct {
	Name    string            `json:"name"` // znode.StartBarrier is the start barrier
	Round   int               `json:"round"`
	Attempt int               `json:"attempt"` // 1, or more after aborted attempts at this round
	Mode    znode.BarrierMode `json:"mode"`
	Workers int               `json:"workers"` // how many must arrive
	Since   time.Time         `json:"since"`   // when the first of them arrived, by ZooKeeper's clock
	Arrived []int             `json:"arrived"` // ids, ascending
	Missing []int             `json:"missing"` // ids, ascending; in a live round all may be there for a moment
}

// Rounds lists the rounds of barriers that are under way in a job, sorted by name and round. It costs one read if no
// worker has been at a barrier, else about seven for each barrier and one for each aborted round that is kept; live
// rounds cost one more for each arrival. Rounds that cannot be understood are left out, as are those that end while
// they are read. o is the job as it was observed; nil, or one without a Record, has none.
func (r *Reader) Rounds(ctx context.Context, o *resource.Observed) ([]Round, error) {
	if o == nil || o.Record == nil || job.Joined(o) == 0 {
		return nil, nil
	}
	root, g := job.Of(o.Record).Root, o.Record.Generation
	names, err := r.children(ctx, znode.Barriers(root, g))
	if err != nil {
		return nil, err
	}
	byName, err := ForEach(ctx, names, func(ctx context.Context, name string) ([]Round, error) {
		return r.roundsOf(ctx, root, g, name)
	})
	return slices.Concat(byName...), err
}

// roundsOf lists the rounds of one barrier that are under way.
func (r *Reader) roundsOf(ctx context.Context, root, g, name string) ([]Round, error) {
	kept, err := r.children(ctx, znode.BarrierFloor(root, g, name))
	if err != nil {
		return nil, err
	}
	latest := map[int]int{} // attempt by round
	for _, folder := range kept {
		if round, attempt, err := znode.ParseAttempt(folder); err == nil {
			latest[round] = max(latest[round], attempt)
		}
	}
	var rounds []Round
	for round, attempt := range latest {
		one := Round{Name: name, Round: round, Attempt: attempt}
		under, err := r.readRound(ctx, znode.Attempt(root, g, name, round, attempt), &one)
		if err != nil {
			return nil, err
		}
		if under {
			rounds = append(rounds, one)
		}
	}
	slices.SortFunc(rounds, func(a, b Round) int { return cmp.Compare(a.Round, b.Round) })
	return rounds, nil
}

// readRound fills what dir says of a round, and reports whether it is under way. It reads the outcome last: so a round
// that it reports had at most the arrivals that it names.
func (r *Reader) readRound(ctx context.Context, dir string, one *Round) (under bool, err error) {
	body, made, err := r.source.Get(ctx, znode.RoundState(dir))
	if errors.Is(err, zkconn.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	st, err := znode.Decode[znode.Round](body)
	if err != nil || st.Aborted != "" {
		return false, nil
	}
	names, err := r.children(ctx, znode.Arrivals(dir))
	if err != nil || len(names) == 0 {
		return false, err
	}
	one.Mode, one.Workers = st.Mode, st.Workers
	there := make([]bool, st.Workers)
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil && id >= 0 && id < len(there) {
			there[id] = true
		}
	}
	one.Arrived, one.Missing = []int{}, []int{}
	for id, is := range there {
		if is {
			one.Arrived = append(one.Arrived, id)
		} else {
			one.Missing = append(one.Missing, id)
		}
	}
	if len(one.Arrived) == 0 {
		return false, nil // what is there are no arrivals
	}
	if one.Since, err = r.firstArrival(ctx, dir, one); err != nil {
		return false, err
	}
	if one.Since.IsZero() {
		one.Since = made.Ctime
	}
	_, decided, err := r.source.Exists(ctx, znode.Counted(dir, st.Workers-1))
	return !decided, err
}

// firstArrival is when the first worker arrived; zero if nobody has any more. A round is made before that: by whoever
// arrives first at the round before it.
func (r *Reader) firstArrival(ctx context.Context, dir string, one *Round) (time.Time, error) {
	paths := []string{znode.Counted(dir, 0)}
	if one.Mode.Live() {
		paths = paths[:0]
		for _, id := range one.Arrived {
			paths = append(paths, znode.Arrival(dir, id))
		}
	}
	stats, err := ForEach(ctx, paths, func(ctx context.Context, path string) (zkconn.Stat, error) {
		stat, there, err := r.source.Exists(ctx, path)
		if !there {
			return zkconn.Stat{}, err // it may have left meanwhile
		}
		return stat, err
	})
	var first time.Time
	for _, stat := range stats {
		if at := stat.Ctime; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, err
}
