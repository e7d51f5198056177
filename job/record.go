package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
