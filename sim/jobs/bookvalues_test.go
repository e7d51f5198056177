package jobs_test

import (
	"fmt"

	"muster/worker"
	"muster/zkmodel"
	"muster/zkstate/znode"
)

// values is what the workers of a generation have published.
type values struct {
	sizes  map[int]map[string]int    // by id and key
	newest map[int]map[string]string // what the body of a value says
	shared int                       // bytes taken of the room that all share
}

func newValues() values {
	return values{sizes: map[int]map[string]int{}, newest: map[int]map[string]string{}}
}

func (v *values) applyShared(op zkmodel.Op) (err error) {
	if op.Type == zkmodel.OpSetData {
		v.shared, err = znode.DecodeShared(op.Data)
	}
	return err
}

// apply notes a value. Only the worker of that id writes there.
func (v *values) apply(s step, op zkmodel.Op, p place, ended bool) error {
	id, err := znode.IDNumber(p.parts[1])
	if err != nil || op.Type == zkmodel.OpDelete {
		return err
	}
	if s.who == nil || s.who.id != id {
		return fmt.Errorf("it publishes a value of %d", id)
	}
	value, err := znode.DecodeValue(op.Data)
	if err != nil {
		return err
	}
	if v.sizes[id] == nil {
		v.sizes[id], v.newest[id] = map[string]int{}, map[string]string{}
	}
	v.sizes[id][p.parts[2]] = len(op.Data) + keyCost
	v.newest[id][p.parts[2]] = string(value.Data)
	return nil
}

// keyCost is what docs/protocol.md says that each value counts besides its body.
const keyCost = 256

// check reports whether the shared room is what the workers have taken of it.
func (v *values) check(workers int) error {
	taken := 0
	for _, keys := range v.sizes {
		total := 0
		for _, size := range keys {
			total += size
		}
		taken += max(0, total-worker.MaxData/2/workers)
	}
	if taken != v.shared {
		return fmt.Errorf("the workers have %d bytes of the shared room, and it says %d", taken, v.shared)
	}
	return nil
}
