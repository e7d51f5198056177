package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate/znode"
)

// barrierTimeout is how long a worker waits at a barrier: shorter than a session lasts, so that an arrival can be on
// its way while others abort.
const barrierTimeout = 3 * time.Second

// barrierRounds is how many rounds the workers of a world pass: with three the first is cleared.
const barrierRounds = 4

// barrierWorld is a world of workers that meet at a barrier, round after round. Who is started again begins with the
// first round, like a script. A worker that has lost its identity to another process ends.
func barrierWorld(n int, live, retry bool, twice ...string) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, n)
		names := append([]string{"w0", "w1", "w2"}[:n:n], twice...)
		for i, identity := range names {
			w.Process(fmt.Sprintf("p%d", i), 1, func(p *sim.Process) error {
				m, err := k.join(p, worker.Config{Identity: identity})
				if err == nil {
					err = m.passAll(barrierRounds, live, retry)
				}
				if err == nil {
					err = m.complete()
				}
				return endsWell(err)
			})
		}
	}
}

// missingWorld is a world of two workers that meet at a barrier for three. Their time is up at the same moment, attempt
// after attempt.
func missingWorld(live bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 3)
		for _, identity := range []string{"w0", "w1"} {
			k.worker(identity, identity, 0, func(_ *sim.Process, m *member) error { return m.passAll(2, live, true) })
		}
	}
}

// nextWorld is a world of workers that do not say which round they mean. Who is started again does not know how far it
// has come, and who could not note an abort is told of it again.
func nextWorld(live, retry bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2)
		for _, identity := range []string{"w0", "w1"} {
			k.worker(identity, identity, 1, func(p *sim.Process, m *member) (err error) {
				for n := 0; n < barrierRounds && err == nil; n++ {
					var round int
					err = m.do(func() (err error) {
						round, err = m.NextRound(p.Context(), "x")
						return err
					})
					if err == nil {
						err = m.pass("x", &round, live, retry)
					}
				}
				if err == nil {
					err = m.complete()
				}
				return err
			})
		}
	}
}

// startWorld is a world of workers that are started again until they have passed the start barrier. All do.
func startWorld(w *sim.World) {
	k := newJobs(w, 3, func(j *job.Job) { j.Timeouts.Barrier = resource.Duration(barrierTimeout) })
	passed := map[string]bool{}
	for _, identity := range []string{"w0", "w1", "w2"} {
		w.Process("p-"+identity, 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: identity, Run: "r"})
			for err == nil {
				var attempt int
				err = m.do(func() error { return m.StartBarrier(p.Context(), 0, &attempt) })
				var aborted *worker.AbortedError
				if err == nil || errors.As(err, &aborted) {
					p.Saw(func() { err = k.book.sawOutcome(m.life, znode.StartBarrier, 0, attempt, aborted) })
				}
				if err == nil && aborted == nil {
					p.Saw(func() { passed[identity] = true })
					err = m.complete()
					break
				}
			}
			return endsWell(err)
		})
	}
	w.AtEnd(func() error {
		if len(passed) != 3 {
			return fmt.Errorf("only %v have passed the start barrier", passed)
		}
		return nil
	})
}

// passAll passes the first rounds of a barrier.
func (m *member) passAll(rounds int, live, retry bool) (err error) {
	for round := 0; round < rounds && err == nil; round++ {
		err = m.pass("x", &round, live, retry)
	}
	return err
}

// pass waits at a round until it is decided, over all sessions that it takes. In a mode with attempts it comes again
// until one is released, three times at most.
func (m *member) pass(name string, round *int, live, retry bool) error {
	for range 3 {
		attempt := 0
		b := worker.Barrier{
			Name: name, Round: round, Live: live, Retry: retry, Timeout: barrierTimeout, Attempt: &attempt,
		}
		err := m.do(func() error { return m.Barrier(m.p.Context(), b) })
		var aborted *worker.AbortedError
		if err != nil && !errors.As(err, &aborted) {
			return err
		}
		if round != nil {
			m.p.Saw(func() { err = m.k.book.sawOutcome(m.life, name, *round, attempt, aborted) })
		}
		if err != nil || aborted == nil {
			return err
		}
		if !retry {
			return nil
		}
	}
	return nil
}

// sawOutcome checks what a worker is told of a round against what became of it.
func (b *book) sawOutcome(who *life, name string, round, number int, told *worker.AbortedError) error {
	one := b.run(who.g).barriers[name]
	if one == nil {
		return fmt.Errorf("%s: nobody made barrier %s", who.name, name)
	}
	if told == nil && (number == 0 || one.skipped(round)) { // below the floor
		if !one.releasedRound(round) && !one.skipped(round) {
			return fmt.Errorf("%s is told that round %d of %s was released", who.name, round, name)
		}
		return nil
	}
	if told != nil {
		number = told.Attempt
	}
	a := one.attempts[znode.AttemptName(round, number)]
	switch {
	case a == nil:
		return fmt.Errorf("%s: nobody made attempt %d at round %d of %s", who.name, number, round, name)
	case told == nil && !a.released:
		return fmt.Errorf("%s is told that %s of %s was released", who.name, a.name, name)
	case told == nil && !a.arrived[who.id]:
		return fmt.Errorf("%s is told that %s of %s was released, and has not arrived", who.name, a.name, name)
	case told != nil && !a.aborted:
		return fmt.Errorf("%s is told that %s of %s was aborted", who.name, a.name, name)
	case told != nil && (told.Why != a.state.Aborted || !slices.Equal(told.Missing, a.state.Missing)):
		return fmt.Errorf("%s is told that %s of %s was aborted: %v", who.name, a.name, name, told)
	}
	return nil
}
