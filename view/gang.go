package view

import (
	"fmt"
	"strings"
	"time"

	"muster/text"
)

// Gang is how far the workers of a gang have come together.
type Gang struct {
	Attempt  int       `json:"attempt"` // from 1
	State    GangState `json:"state"`
	Since    time.Time `json:"since"` // the attempt is the newest
	Used     int       `json:"restarts_used"`
	Restarts int       `json:"restarts"` // that are declared
	// What ended the attempt before, or this one if the gang has failed.
	Because string `json:"because,omitempty"`
	By      string `json:"by,omitempty"`        // identity of the worker that decided
	Exit    *int   `json:"exit_code,omitempty"` // of the command that failed
	Lost    []int  `json:"lost,omitempty"`      // ids that were gone; at most 100

	Missing  []int `json:"missing,omitempty"`  // ids of those for whom the start waits
	Finished []int `json:"finished,omitempty"` // ids of those whose command has ended well in this attempt

	Spares []string `json:"spares,omitempty"` // who waits to replace a worker: identities in the order of seats
	Seats  int      `json:"seats,omitempty"`  // for spares
}

// GangState says how far an attempt is.
type GangState string

// An attempt waits until all are live, and then runs until the commands of all have ended well. Failed is for good.
const (
	GangWaits    GangState = "waits"
	GangRuns     GangState = "runs"
	GangFinished GangState = "finished"
	GangFailed   GangState = "failed"
)

// Lines say where the gang stands, and why.
func (g *Gang) Lines(workers int, now time.Time) []string {
	if g == nil {
		return nil
	}
	state := map[GangState]string{
		GangWaits: "waits until all are live", GangRuns: "runs", GangFinished: "is finished",
		GangFailed: "has failed for good",
	}[g.State]
	lines := []string{fmt.Sprintf("attempt %d of the gang %s; %d of %d restarts used",
		g.Attempt, state, g.Used, g.Restarts)}
	ended := g.Attempt - 1
	if g.State == GangFailed {
		ended = g.Attempt
	}
	if g.Because != "" {
		lines = append(lines, fmt.Sprintf("attempt %d ended %s: %s", ended, agoText(now, g.Since), text.Visible(g.Because)))
	}
	if len(g.Missing) > 0 {
		lines = append(lines, "the start waits for id "+ranges(g.Missing))
	}
	if n := len(g.Finished); n > 0 && g.State == GangRuns {
		lines = append(lines, fmt.Sprintf("%d of %d commands have ended well: id %s", n, workers, ranges(g.Finished)))
	}
	if g.Seats > 0 && g.State != GangFinished && g.State != GangFailed {
		spares := fmt.Sprintf("%d of %d spares wait", len(g.Spares), g.Seats)
		if n := len(g.Spares); n > 0 {
			spares += ": " + text.Visible(strings.Join(g.Spares[:min(n, maxSpares)], ", "))
			if n > maxSpares {
				spares += ", …"
			}
		}
		lines = append(lines, spares)
	}
	return lines
}

// maxSpares is how many spares a line names.
const maxSpares = 8

// agoText is "3h ago", or without ages "at 2026-07-01T02:00Z".
func agoText(now, at time.Time) string {
	if now.IsZero() {
		return "at " + Stamp(at)
	}
	return Ago(now, at)
}
