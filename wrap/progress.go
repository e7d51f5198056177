package wrap

import "sync"

// Stage is how far a worker has come.
type Stage string

// The stages, in order.
const (
	StageJoining  Stage = "joining"
	StageWaiting  Stage = "waiting"
	StageRunning  Stage = "running"
	StageDraining Stage = "draining"
	StageLeaving  Stage = "leaving"
)

func stages() []Stage {
	return []Stage{StageJoining, StageWaiting, StageRunning, StageDraining, StageLeaving}
}

// progress is what the socket and the health server tell of a run.
type progress struct {
	metrics *metrics

	mu         sync.Mutex
	stage      Stage
	membership *membership // nil before the join
}

func newProgress() *progress { return &progress{stage: StageJoining, metrics: newMetrics()} }

func (p *progress) enter(s Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = s
}

func (p *progress) joined(ms *membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.membership = ms
}

// now is the stage, and the membership once it has joined.
func (p *progress) now() (Stage, *membership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage, p.membership
}
