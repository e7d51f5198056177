package znode

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"muster/resource"
)

// Limits of operations.
const (
	MaxOperations = 100      // open ones of a duty
	MaxSteps      = 10_000   // of an operation
	MaxOutput     = 64 << 10 // bytes of the output of one step
	MaxOutputs    = 16 << 20 // bytes of the outputs of an operation
)

// Opening is the body of an operation's znode while the operation is open. When it is empty the operation is closed,
// and what is below it is garbage.
type Opening struct {
	ID     string `json:"id"`     // random: the folder of its steps
	Script string `json:"script"` // digest of what runs it
	By     string `json:"by"`     // identity of the holder that opened it, or was the last to resume it
	Epoch  int64  `json:"epoch"`  // of that holder
	Runs   int    `json:"runs"`   // how often it was opened or resumed
}

// Journal is the body of the folder of an operation's steps. It is written together with each of them.
type Journal struct {
	Steps int `json:"steps"` // that have begun
	Done  int `json:"done"`  // of these
	Bytes int `json:"bytes"` // of all outputs
}

// StepRecord is the body of one step.
type StepRecord struct {
	Name     string `json:"name"`
	Done     bool   `json:"done"`             // false: it has begun
	Attempts int    `json:"attempts"`         // how often it was begun
	By       string `json:"by"`               // identity of the holder that made the last attempt
	Epoch    int64  `json:"epoch"`            // of that holder
	Output   []byte `json:"output,omitempty"` // of a step that is done; base64 in JSON
}

// StepKey names the znode of a step: the SHA-256, in hex, of its name and arguments, each as its length in bytes in
// decimal, a colon, and its bytes.
func StepKey(name string, args []string) string {
	h := sha256.New()
	for _, s := range append([]string{name}, args...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// CheckOperation says why name is not a valid name of an operation, or returns nil: the rules of names hold.
func CheckOperation(name string) error { return resource.CheckName("operation", name) }

// CheckStep says why name is not a valid name of a step, or returns nil: the rules of names hold.
func CheckStep(name string) error { return resource.CheckName("step", name) }

// Ops is the folder of a duty's operations.
func Ops(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "op") }

// Operation is one operation. Its body is an Opening; its child is the folder of its steps.
func Operation(root, g, duty, name string) string { return resource.Join(Ops(root, g, duty), name) }

// Steps is the folder of an operation's steps. Its body is a Journal.
func Steps(root, g, duty, name, id string) string {
	return resource.Join(Operation(root, g, duty, name), id)
}

func (o Opening) check() error {
	if err := CheckToken(o.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	return required("script", o.Script, "by", o.By)
}

func (j Journal) check() error {
	if j.Done < 0 || j.Steps < j.Done || j.Bytes < 0 {
		return fmt.Errorf("%d of %d steps and %d bytes do not fit together", j.Done, j.Steps, j.Bytes)
	}
	return nil
}

func (s StepRecord) check() error {
	switch {
	case s.Attempts < 1:
		return fmt.Errorf("attempts: %d is less than 1", s.Attempts)
	case !s.Done && len(s.Output) > 0:
		return fmt.Errorf("output: a step that is not done has none")
	case len(s.Output) > MaxOutput:
		return fmt.Errorf("output: %d bytes are more than the %d allowed", len(s.Output), MaxOutput)
	}
	return required("name", s.Name, "by", s.By)
}
