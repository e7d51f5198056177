package jobs_test

import (
	"errors"
	"fmt"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/worker"
	"muster/zkstate/znode"
)

// applyRoll checks that the roll is written once, when all have joined, and has one row for each id.
func (b *book) applyRoll(op zkmodel.Op) error {
	switch {
	case op.Type != zkmodel.OpSetData:
		b.roll = nil
		return nil
	case b.roll != nil:
		return fmt.Errorf("the roll is written again")
	}
	_, rows, odd := znode.DecodeRoll(op.Data)
	if len(odd) > 0 || len(rows) != b.job.Workers {
		return fmt.Errorf("the roll has %d rows, and %v", len(rows), odd)
	}
	b.roll = rows
	return nil
}

// rollWorld has two workers, each of them twice, who wait for each other and read the roll, whoever writes it.
func rollWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a1", "a2", "b1", "b2"} {
		w.Process("p-"+name, 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: name[:1]})
			if err != nil {
				return endsWell(err)
			}
			var roll []worker.Worker
			err = m.do(func() (err error) {
				roll, err = m.Roll(p.Context())
				return err
			})
			if err == nil {
				p.Saw(func() { err = k.book.sawRoll(m.life, roll) })
			}
			var absent *worker.AbsentError
			if errors.As(err, &absent) { // the others have ended
				return endsWell(m.leave())
			}
			if err != nil {
				return endsWell(err)
			}
			return endsWell(m.complete())
		})
	}
	k.hand()
}

// sawRoll checks that a worker reads the roll that was written, if it was, and that everybody is in it.
func (b *book) sawRoll(who *life, roll []worker.Worker) error {
	if len(roll) != b.job.Workers {
		return fmt.Errorf("%s reads a roll of %d workers", who.name, len(roll))
	}
	for id, w := range roll {
		if identity := b.run(who.g).ids[id]; w.ID != id || identity == "" || w.Port != address(identity).Port {
			return fmt.Errorf("%s reads of worker %d that it is %d on port %d, and it is %q",
				who.name, id, w.ID, w.Port, identity)
		}
	}
	return nil
}
