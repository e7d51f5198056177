package znode

import (
	"errors"
	"fmt"
	"time"

	"muster/apply/history"
)

// Mark says who does what. It is the body of a place in the queue for an apply lock, and of an applied plan. Only
// people read it, except Op.
type Mark struct {
	Who   string    `json:"who"`            // user@host
	What  string    `json:"what"`           // the command
	Since time.Time `json:"since"`          // by the clock of Who
	Plan  string    `json:"plan,omitempty"` // id of the saved plan, if there is one
	Op    string    `json:"op,omitempty"`   // random: after a lost reply, the writer recognises its own mark
	// Actor is who asked for it, and URL the run of the pipeline, as in the history.
	Actor string `json:"actor,omitempty"`
	URL   string `json:"url,omitempty"`
}

// String says who holds the lock, since when and for what.
func (m Mark) String() string {
	return fmt.Sprintf("%s holds it since %s (%s)%s", m.Name(), m.Since.Format(time.RFC3339), m.What, m.Link())
}

// Name is who asked for it, and the process that does it, if that is somebody else: "ann (runner@build)".
func (m Mark) Name() string {
	if m.Actor == "" || m.Actor == m.Who {
		return m.Who
	}
	return m.Actor + " (" + m.Who + ")"
}

// Link is the address of the run after a comma, or nothing.
func (m Mark) Link() string {
	if m.URL == "" {
		return ""
	}
	return ", " + m.URL
}

// check cuts its time to whole seconds.
func (m *Mark) check() error {
	m.Since, m.URL = m.Since.UTC().Truncate(time.Second), history.CleanURL(m.URL)
	if m.Who == "" {
		return errors.New("it does not say who")
	}
	return nil
}
