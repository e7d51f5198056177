package znode

import (
	"fmt"
	"time"
)

// Mark says who does what. It is the body of a place in the queue for an apply lock, and of an applied plan. Only
// people read it, except Op.
type Mark struct {
	Who   string    `json:"who"`            // user@host
	What  string    `json:"what"`           // the command
	Since time.Time `json:"since"`          // by the clock of Who
	Plan  string    `json:"plan,omitempty"` // id of the saved plan, if there is one
	Op    string    `json:"op,omitempty"`   // random: after a lost reply, the writer recognises its own mark
}

// String says who holds the lock, since when and for what.
func (m Mark) String() string {
	return fmt.Sprintf("%s holds it since %s (%s)", m.Who, m.Since.Format(time.RFC3339), m.What)
}

// EncodeMark encodes a mark, its time in UTC and in whole seconds.
func EncodeMark(m Mark) ([]byte, error) {
	m.Since = m.Since.UTC().Truncate(time.Second)
	if m.Who == "" {
		return nil, fmt.Errorf("mark: it does not say who")
	}
	return encodeJSON("mark", m)
}

// DecodeMark decodes a mark.
func DecodeMark(data []byte) (Mark, error) {
	var m Mark
	if err := decodeJSON("mark", data, &m); err != nil {
		return Mark{}, err
	}
	if m.Who == "" {
		return Mark{}, fmt.Errorf("mark: it does not say who")
	}
	m.Since = m.Since.UTC().Truncate(time.Second)
	return m, nil
}
