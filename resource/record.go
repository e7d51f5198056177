package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
)

// Record is what ZooKeeper keeps of a resource: the declaration as it was applied, and facts about this generation.
// docs/protocol.md describes its bytes.
//
// Its fields with a name in JSON are those that the Records of all kinds have, in ZooKeeper and in a plan file.
//
// A newer muster may have written a Record. Whoever writes it again keeps Body, the bytes of the declaration, and
// Extra; only apply declares anew.
type Record struct {
	Declaration Declaration `json:"-"`
	Stack       string      `json:"stack"`                // the stack that owns it
	Home        string      `json:"home,omitempty"`       // of the stack
	Generation  string      `json:"generation,omitempty"` // random id; a new one each time that the resource is created
	State       State       `json:"state"`
	By          string      `json:"by,omitempty"`      // user@host of the last apply
	Applied     string      `json:"applied,omitempty"` // when, RFC 3339, by the clock of that machine
	Op          string      `json:"op"`                // random id of the commit that wrote this
	Digest      string      `json:"digest"`            // see Digest; no longer matches once somebody edits the Record
	ACL         []string    `json:"acl,omitempty"`     // of the znodes that are created for this resource; ids only

	Body  json.RawMessage            `json:"-"` // the bytes of the declaration in the Record
	Extra map[string]json.RawMessage `json:"-"` // the other fields: those of the kind, and those of a newer muster

	edited bool // see SetEdited
}

// State is the part of a status that is recorded, not observed.
type State string

// The states. StateTerminating: members have been asked to stop.
const (
	StateOpen        State = "open"
	StateTerminating State = "terminating"
)

// Edited reports whether somebody other than muster changed the declaration in the Record.
func (r Record) Edited() bool {
	if r.Body == nil {
		return r.edited
	}
	return r.Digest != Digest(r.Body, r.Stack, r.ACL)
}

// SetEdited sets what Edited returns for a Record without a Body, such as one of a saved plan.
func (r *Record) SetEdited(edited bool) { r.edited = edited }

// Declare puts the declaration d into r and signs r.
func (r *Record) Declare(d Declaration) error {
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	r.Declaration, r.Body = d, body
	r.Sign()
	return nil
}

func (r *Record) Sign() { r.Digest = Digest(r.Body, r.Stack, r.ACL) }

// Digest is the SHA-256, in hex, of one JSON object with the keys Job (a declaration's bytes in its Record), Stack (its
// owner) and ACL. The key is Job for every kind.
func Digest(body []byte, stack string, acl []string) string {
	if len(acl) == 0 {
		acl = nil // an empty list and no list have the same digest
	}
	owner, _ := json.Marshal(stack) // a string and a list of strings always encode
	ids, _ := json.Marshal(acl)
	sum := sha256.New()
	fmt.Fprintf(sum, `{"Job":%s,"Stack":%s,"ACL":%s}`, body, owner, ids)
	return hex.EncodeToString(sum.Sum(nil))
}

// ExtraOf is a field of r that its kind keeps there; the zero V if r is nil, or has no such field.
func ExtraOf[V any](r *Record, key string) V {
	var v, none V
	if r == nil || r.Extra[key] == nil || json.Unmarshal(r.Extra[key], &v) != nil {
		return none
	}
	return v
}

// SetExtra replaces r.Extra by a new map with the field, since copies of r share the old one.
func (r *Record) SetExtra(key string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	extra := map[string]json.RawMessage{}
	maps.Copy(extra, r.Extra)
	extra[key] = body
	r.Extra = extra
	return nil
}

// Ignore is drift that is known and tolerated for a while.
type Ignore struct {
	Address string   `json:"address"` // of a declared resource, or the path of an undeclared one
	Fields  []string `json:"fields"`  // "workers", "labels", "labels.team", "timeouts"; none: whatever is found
	Until   string   `json:"until"`   // the last day: "2027-01-31"
	Reason  string   `json:"reason"`
	At      string   `json:"-"` // of its declaration: "drift.hcl:3"
}
