package wrap

import "sync"

// stage is how far a worker has come.
type stage string

// The stages, in order.
const (
	stageJoining  stage = "joining"
	stageWaiting  stage = "waiting"
	stageRunning  stage = "running"
	stageDraining stage = "draining"
	stageLeaving  stage = "leaving"
)

func stages() []stage {
	return []stage{stageJoining, stageWaiting, stageRunning, stageDraining, stageLeaving}
}

// progress is what those who ask are told of a run.
type progress struct {
	meters *meters

	mu    sync.Mutex
	stage stage
	seat  *seat
}

func newProgress() *progress { return &progress{stage: stageJoining, meters: newMeters()} }

func (p *progress) enter(s stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = s
}

func (p *progress) sit(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seat = s
}

// now is the stage and, once it has joined, the seat.
func (p *progress) now() (stage, *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage, p.seat
}
