package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Record is what ZooKeeper remembers of a thing: the declaration as it was applied, and the facts about this life of it.
// Its bytes are described in docs/protocol.md.
//
// A record may have been written by a newer muster. Whatever this one does not know stays in Body and Extra, and is
// written back with it.
type Record struct {
	Declaration Declaration
	Stack       string // owner mark
	Home        string // of the stack; empty in records of before it was written
	Generation  string // one life of the thing's znode; random
	State       State
	By          string   // user@host of the last apply
	Applied     string   // when, RFC 3339, by the clock of that machine
	Op          string   // id of the commit that wrote this; random
	Digest      string   // Digest of what apply wrote; an edited record does not verify
	ACL         []string // of what is created for this thing; ids only

	Body  json.RawMessage            // the declaration as it is written in the record
	Extra map[string]json.RawMessage // the other fields: those of the kind, and those of a newer muster

	edited bool // see SetEdited
}

// State is the part of a status that is written down rather than observed.
type State string

// StateOpen is the usual one. StateTerminating: members have been asked to stop.
const (
	StateOpen        State = "open"
	StateTerminating State = "terminating"
)

// Edited reports whether somebody other than muster changed the declaration in the record.
func (r Record) Edited() bool {
	if r.Body == nil {
		return r.edited
	}
	return r.Digest != Digest(r.Body, r.Stack, r.ACL)
}

// SetEdited is for a record that is known without its Body, as in a saved plan.
func (r *Record) SetEdited(edited bool) { r.edited = edited }

// Declare puts a declaration, its owner and its ACL into r, keeps what only a newer muster knows of the declaration that
// was there, and signs it.
func (r *Record) Declare(d Declaration) error {
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if r.Body != nil {
		if body, err = keepUnknown(body, r.Body, d.Kind().Fields); err != nil {
			return err
		}
	}
	r.Declaration, r.Body = d, body
	r.Sign()
	return nil
}

// Sign makes the digest that of what r says now.
func (r *Record) Sign() { r.Digest = Digest(r.Body, r.Stack, r.ACL) }

// Digest is the SHA-256 of a declaration's bytes as they stand in a record, of its owner and its ACL. The digested text is
// one JSON object with the keys Job, Stack and ACL, whatever the kind: that is how the first release wrote it.
func Digest(body []byte, stack string, acl []string) string {
	if len(acl) == 0 {
		acl = nil // an absent and an empty list are one
	}
	owner, _ := json.Marshal(stack) // plain data: it always encodes
	ids, _ := json.Marshal(acl)
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(`{"Job":`), body, []byte(`,"Stack":`), owner, []byte(`,"ACL":`), ids, []byte(`}`)} {
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
