package znode

import (
	"fmt"
	"time"
)

// Mark says who does what: the data of a place in the queue for an apply lock, and of an applied plan. It is for
// people, but for Op.
type Mark struct {
	Who   string    `json:"who"`            // user@host
	What  string    `json:"what"`           // the command
	Since time.Time `json:"since"`          // by the clock of Who
	Plan  string    `json:"plan,omitempty"` // id of the saved plan, if there is one
	Op    string    `json:"op,omitempty"`   // random: tells its writer, after a lost reply, that this is its own mark
}

// String says who holds what the mark stands for.
func (m Mark) String() string {
	return fmt.Sprintf("%s holds it since %s (%s)", m.Who, m.Since.Format(time.RFC3339), m.What)
}

// EncodeMark writes a mark, its time in UTC and whole seconds.
func EncodeMark(m Mark) ([]byte, error) {
	m.Since = m.Since.UTC().Truncate(time.Second)
	if m.Who == "" {
		return nil, fmt.Errorf("mark: it does not say who")
	}
	return encodeJSON("mark", m)
}

// DecodeMark reads a mark.
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
