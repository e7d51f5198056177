package znode

import (
	"fmt"
	"slices"
)

// Present is the body of <root>/<group>/<identity>, the ephemeral znode of a live member of a group.
type Present struct {
	Nonce   string   `json:"nonce"`   // random, of this process
	Version string   `json:"version"` // of the application
	Address string   `json:"address,omitempty"`
	Can     []string `json:"can,omitempty"` // the duties that it can do, sorted
	Ready   bool     `json:"ready"`         // false: it may be given nothing yet
}

// Seat is the body of a seat. The member creates it without duties; only the assigner changes them.
type Seat struct {
	Identity string   `json:"identity"`
	Nonce    string   `json:"nonce"`            // that of Present
	Assign   int      `json:"assign,omitempty"` // the newest method of assignment that its software knows; 0: none
	Duties   []string `json:"duties,omitempty"` // that the assigner gave it, sorted
}

// DutyTaken is the body of a duty's znode: who took it last. It stays when that member has gone.
type DutyTaken struct {
	Nonce    string `json:"nonce"` // random, of this take: with it a process recognises its own write
	Identity string `json:"identity"`
	Version  string `json:"version"`
}

// Holder is the body of held.
type Holder struct {
	Identity string `json:"identity"`
	Nonce    string `json:"nonce"` // that of DutyTaken
	Version  string `json:"version"`
	Address  string `json:"address,omitempty"`
}

// Resignation is the message of a member that gave up a duty which the assigner had given it.
type Resignation struct {
	Seat     string `json:"seat"`     // name of its seat
	Identity string `json:"identity"` // for the assigner's memory of failures
	Duty     string `json:"duty"`
	Blame    bool   `json:"blame"`   // false: the command ended with 0
	Because  string `json:"because"` // for people
}

// Ask is an operator's request to the assigner.
type Ask struct {
	Do   AskKind `json:"do"`
	Duty string  `json:"duty"`
	To   string  `json:"to,omitempty"` // identity, for a handover
	By   string  `json:"by"`           // user@host
	ID   string  `json:"id,omitempty"` // random: with it the sender recognises its own write
}

// AskLog is the body of a folder of requests, to the assigner or for runs: what was sent last. A request is deleted
// when it was decided upon, or when its run is not kept any more. A sender that got no answer finds here whether its
// request was committed.
type AskLog struct {
	Last []string `json:"last"` // ids of requests, the newest last; at most MaxAskLog
}

// Limits of operators' requests.
const (
	MaxAsks   = 1000 // that wait for the assigner
	MaxAskLog = 50   // that the log remembers
	maxAskBy  = 300  // bytes of who asks
)

// AskKind is what an operator asks for.
type AskKind string

// The requests. A handover without To gives the duty to any other member; one with To also pins it to that member.
const (
	AskHandover AskKind = "handover"
	AskUnpin    AskKind = "unpin"
	AskPause    AskKind = "pause"
	AskResume   AskKind = "resume"
)

// DecodeAskLog decodes the log of requests. An empty body is an empty log.
func DecodeAskLog(data []byte) (AskLog, error) {
	if len(data) == 0 {
		return AskLog{}, nil
	}
	return Decode[AskLog](data)
}

// With is the log after one more request.
func (l AskLog) With(id string) AskLog {
	last := append(slices.Clone(l.Last), id)
	return AskLog{Last: last[max(0, len(last)-MaxAskLog):]}
}

func (p Present) check() error {
	if err := required("nonce", p.Nonce, "version", p.Version); err != nil {
		return err
	}
	return checkSorted("can", p.Can)
}

func (s Seat) check() error {
	if err := required("identity", s.Identity, "nonce", s.Nonce); err != nil {
		return err
	}
	if s.Assign < 0 {
		return fmt.Errorf("assign: %d is less than 0", s.Assign)
	}
	return checkSorted("duties", s.Duties)
}

func (d DutyTaken) check() error { return required("nonce", d.Nonce, "identity", d.Identity) }

func (h Holder) check() error { return required("identity", h.Identity, "nonce", h.Nonce) }

func (r Resignation) check() error {
	if err := required("identity", r.Identity, "duty", r.Duty); err != nil {
		return err
	}
	_, err := SeatNumber(r.Seat)
	return err
}

func (a Ask) check() error {
	if !slices.Contains([]AskKind{AskHandover, AskUnpin, AskPause, AskResume}, a.Do) {
		return fmt.Errorf("do: %q is not known", a.Do)
	}
	if len(a.By) > maxAskBy {
		return fmt.Errorf("by: %d bytes are more than the %d allowed", len(a.By), maxAskBy)
	}
	return required("duty", a.Duty)
}

func (AskLog) check() error { return nil }
