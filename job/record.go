package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Record is what ZooKeeper remembers of a job: the declaration as it was applied, and the facts about this life
// of it. It is the body of <root>/.muster/job/<name>, as JSON.
type Record struct {
	Job        Job         `json:"job"`
	Stack      string      `json:"stack"`      // owner mark
	Generation string      `json:"generation"` // one life of the job znode; random
	State      RecordState `json:"state"`
	By         string      `json:"by,omitempty"`      // user@host of the last apply
	Applied    string      `json:"applied,omitempty"` // when, RFC 3339, by the clock of that machine
	Op         string      `json:"op"`                // id of the commit that wrote this; random
	Digest     string      `json:"digest"`            // Sum of what apply wrote; an edited record does not verify
	ACL        []string    `json:"acl,omitempty"`     // of what is created for this job; ids only
	Last       *Run        `json:"last,omitempty"`    // the last completed run
	NoRoll     string      `json:"no_roll,omitempty"` // the generation whose roll was too large for one znode
}

// RecordState is the part of a job's status that is written down rather than observed.
type RecordState string

// Open is the usual state. Terminating: workers have been asked to stop.
const (
	Open        RecordState = "open"
	Terminating RecordState = "terminating"
)

// Run is one completed run of a job.
type Run struct {
	ID         string `json:"id,omitempty"` // the workers' --run, if they gave one
	Generation string `json:"generation"`
	Completed  string `json:"completed"` // RFC 3339
}

// maxRun bounds the name of a run, in characters.
const maxRun = 128

// CheckRun says why id cannot be the name of a run, or returns nil: 1 to 128 printable characters without spaces. It is
// no znode's name, so that 2026-11-21T10:00:00Z and build/1234 are names of runs.
func CheckRun(id string) error {
	switch n := utf8.RuneCountInString(id); {
	case id == "":
		return fmt.Errorf("the name of a run must not be empty")
	case n > maxRun:
		return fmt.Errorf("the name of a run has at most %d characters; this one has %d", maxRun, n)
	case !utf8.ValidString(id):
		return fmt.Errorf("the name of a run must be UTF-8; %q is not", id)
	}
	for _, r := range id {
		if r == ' ' || !unicode.IsPrint(r) {
			return fmt.Errorf("the name of a run may hold printable characters without spaces, not %q", r)
		}
	}
	return nil
}

// Sum digests what a declaration and its owner decide: job, stack and ACL.
func (r Record) Sum() string {
	acl := r.ACL
	if len(acl) == 0 {
		acl = nil // an absent and an empty list are one JSON
	}
	body, _ := json.Marshal(struct { // plain data: it always encodes
		Job   Job
		Stack string
		ACL   []string
	}{r.Job, r.Stack, acl})
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Edited reports whether somebody other than muster changed the declaration in the record.
func (r Record) Edited() bool { return r.Digest != r.Sum() }
