package znode

import "fmt"

// Claim binds an identity to its worker id in one generation: the body of by/<identity>. Only join, rejoin, leave and
// complete write it.
type Claim struct {
	Nonce string     `json:"nonce"` // random, of the process that wrote it last: recognises an own lost commit
	Lives int        `json:"lives"` // incarnations so far, the present one included: 1 after the first join
	State ClaimState `json:"state"`
	// Exit and Signal say how the command of the latest finished life ended; both are absent if it has not ended.
	Exit   *int   `json:"exit_code,omitempty"`
	Signal string `json:"signal,omitempty"`
}

// ClaimState is where a worker stands.
type ClaimState string

// The states of a claim. A worker that left may come back; one that is done may not.
const (
	In   ClaimState = "in"
	Left ClaimState = "left"
	Done ClaimState = "done"
)

// EncodeClaim writes a claim.
func EncodeClaim(c Claim) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return encodeJSON("claim", c)
}

// DecodeClaim reads a claim and checks it.
func DecodeClaim(data []byte) (Claim, error) {
	var c Claim
	if err := decodeJSON("claim", data, &c); err != nil {
		return Claim{}, err
	}
	if err := c.check(); err != nil {
		return Claim{}, err
	}
	return c, nil
}

func (c Claim) check() error {
	switch {
	case c.Nonce == "":
		return fmt.Errorf("claim: it has no nonce")
	case c.Lives < 1:
		return fmt.Errorf("claim: lives: %d is less than 1", c.Lives)
	case c.State != In && c.State != Left && c.State != Done:
		return fmt.Errorf("claim: state: %q is not known", c.State)
	case c.State == Done && c.Exit == nil:
		return fmt.Errorf("claim: it is done without an exit_code")
	case c.Exit != nil && (*c.Exit < 0 || *c.Exit > 255):
		return fmt.Errorf("claim: exit_code: %d is not between 0 and 255", *c.Exit)
	}
	return nil
}
