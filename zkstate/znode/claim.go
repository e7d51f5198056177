package znode

import "fmt"

// Claim is the body of by/<identity>: the claim of an identity to a worker id in one generation. Only join, rejoin,
// leave and complete write it.
type Claim struct {
	Nonce string     `json:"nonce"` // random, of the last writer; with it a process recognises its own write
	Lives int        `json:"lives"` // how often the worker joined: 1 after its first join
	State ClaimState `json:"state"`
	// Exit and Signal say how the worker's last command ended; both are absent if none has ended.
	Exit   *int   `json:"exit_code,omitempty"`
	Signal string `json:"signal,omitempty"`
}

// ClaimState is the state of a worker.
type ClaimState string

// The states of a claim. A worker that left may join again; one that is done may not.
const (
	In   ClaimState = "in"
	Left ClaimState = "left"
	Done ClaimState = "done"
)

func (c Claim) check() error {
	switch {
	case c.Nonce == "":
		return fmt.Errorf("it has no nonce")
	case c.Lives < 1:
		return fmt.Errorf("lives: %d is less than 1", c.Lives)
	case c.State != In && c.State != Left && c.State != Done:
		return fmt.Errorf("state: %q is not known", c.State)
	case c.State == Done && c.Exit == nil:
		return fmt.Errorf("it is done without an exit_code")
	case c.Exit != nil && (*c.Exit < 0 || *c.Exit > 255):
		return fmt.Errorf("exit_code: %d is not between 0 and 255", *c.Exit)
	}
	return nil
}
