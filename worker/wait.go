package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Waiting for all needs no znode of its own: id/n-<N-1> exists as soon as all N have joined, and is never deleted
// while the generation lives. Each worker that waits watches that one znode. It writes nothing, so it may die at any
// time.

// maxNamed is how many workers the text of an error names.
const maxNamed = 8

// AbsentError means that not all workers joined in time. It is a context.DeadlineExceeded. Start the workers that are
// missing, then wait again.
type AbsentError struct {
	Workers int      // how many have to join
	Joined  int      // how many did
	NotLive []string // identities that joined and are not live now: they may have left, completed or crashed
	Missing []string // identities that never joined; known if those that did share a prefix before an index below N
}

func (e *AbsentError) Error() string {
	s := fmt.Sprintf("%d of %d workers have joined", e.Joined, e.Workers)
	if len(e.Missing) > 0 {
		s += "; missing: " + text.List(e.Missing, maxNamed)
	}
	if len(e.NotLive) > 0 {
		s += "; joined, but not live: " + text.List(e.NotLive, maxNamed)
	}
	return s
}

// Unwrap makes it a context.DeadlineExceeded.
func (e *AbsentError) Unwrap() error { return context.DeadlineExceeded }

// WaitAll waits until all N workers have joined, whether or not they are live now. It fails with AbsentError after the
// job's join timeout, or at the deadline of ctx if that is earlier. If no server answers then, the error is only
// context.DeadlineExceeded.
func (m *Member) WaitAll(ctx context.Context) error {
	err := m.waitAll(ctx)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || m.ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	absent, e := m.Absent(ctx)
	switch {
	case e != nil:
		return fmt.Errorf("it is not known whether all %d workers have joined: %w", m.Job.Workers, err)
	case absent.Joined == m.Job.Workers: // the event had not come yet
		return nil
	}
	return absent
}

func (m *Member) waitAll(ctx context.Context) error {
	timer := time.NewTimer(time.Duration(m.Job.Timeouts.Join))
	defer timer.Stop()
	last := znode.ID(m.Job.Root, m.Generation, m.Job.Workers-1)
	for {
		_, joined, changed, created, err := m.session.CreatedW(ctx, last)
		if err != nil || joined {
			return err
		}
		select {
		case <-changed:
		case <-timer.C:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
		if created() {
			return nil
		}
	}
}

// Absent finds out who is not there. It costs two reads, however many workers there are.
func (m *Member) Absent(ctx context.Context) (*AbsentError, error) {
	joined, _, err := m.session.Children(ctx, znode.By(m.Job.Root, m.Generation))
	if err != nil {
		return nil, err
	}
	live, _, err := m.session.Children(ctx, m.Job.Path())
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	n := m.Job.Workers
	e := &AbsentError{Workers: n, Joined: min(len(joined), n), Missing: missing(joined, n)}
	for _, identity := range joined {
		if _, is := slices.BinarySearch(live, identity); !is {
			e.NotLive = append(e.NotLive, identity)
		}
	}
	return e, nil
}

// missing lists the identities that are not among joined, if all of those are one prefix and an index below n.
func missing(joined []string, n int) []string {
	var prefix string
	there := make([]bool, n)
	for i, identity := range joined {
		p := strings.TrimRight(identity, "0123456789")
		index, err := strconv.Atoi(identity[len(p):])
		if err != nil || index >= n || p+strconv.Itoa(index) != identity || i > 0 && p != prefix {
			return nil
		}
		prefix, there[index] = p, true
	}
	if prefix == "" {
		return nil
	}
	var absent []string
	for i, is := range there {
		if !is {
			absent = append(absent, prefix+strconv.Itoa(i))
		}
	}
	return absent
}
