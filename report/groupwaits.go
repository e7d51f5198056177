package report

import (
	"fmt"
	"slices"
	"strings"

	"muster/text"
)

// maxNamedDuties is how many duties of which the same is to be said are named.
const maxNamedDuties = 5

// waits says what of a group is not as it should be, or not settled, and why. What is the same of several duties is one
// line.
func (d GroupDetail) waits() []string {
	var lines, said []string
	duties := map[string][]string{}
	for _, duty := range d.Duties {
		for _, line := range d.waitsOf(duty) {
			if duties[line] == nil {
				said = append(said, line)
			}
			duties[line] = append(duties[line], duty.Name)
		}
	}
	for _, line := range said {
		lines = append(lines, text.List(duties[line], maxNamedDuties)+": "+line)
	}
	lines = append(lines, d.silence()...)
	for _, q := range d.Requests {
		lines = append(lines, d.requestText(q))
	}
	if n := d.Waiting - len(d.Requests); n > 0 && len(d.Requests) > 0 {
		lines = append(lines, fmt.Sprintf("%d more wait for the assigner", n))
	}
	if d.Waiting > 0 && len(d.Members) == 0 {
		lines = append(lines, "no member is live: what waits for the assigner waits for the first one")
	}
	for _, line := range d.Unread {
		lines = append(lines, "cannot be read: "+line)
	}
	return lines
}

// silence says of which members the group has waited in vain for a decision.
func (d GroupDetail) silence() (lines []string) {
	for _, identity := range d.Passed {
		lines = append(lines, identity+" was passed over as the assigner, because it decided nothing: look at that process")
	}
	if d.Silent != nil && d.Assigner != "" {
		since := "since " + stamp(*d.Silent)
		if !d.Now.IsZero() {
			since = "for " + d.age(*d.Silent)
		}
		lines = append(lines, "the assigner, "+d.Assigner+", has decided nothing "+since+
			": end that process; one that cannot decide must take a seat x-")
	}
	return lines
}

// waitsOf says what of one duty is not as it should be, or not settled.
func (d GroupDetail) waitsOf(duty Duty) []string {
	var lines []string
	switch {
	case duty.PausedBy != "" && duty.Holder != "":
		lines = append(lines, "paused by "+duty.PausedBy+"; "+duty.Holder+" was asked to hand it over")
	case duty.PausedBy != "":
		lines = append(lines, "paused by "+duty.PausedBy)
	case len(d.Members) == 0 && duty.Holder == "": // the status says it
	case duty.Holder == "" && duty.Given != "":
		lines = append(lines, "given to "+duty.Given+", which has not taken it yet"+because(duty.Why))
	case duty.Holder == "":
		lines = append(lines, "nobody has it"+because(duty.Why))
	case duty.Given == "":
		lines = append(lines, duty.Holder+" was asked to hand it over"+because(duty.Why))
	case duty.Given != duty.Holder:
		lines = append(lines, duty.Given+" gets it when "+duty.Holder+" has handed it over"+because(duty.Why))
	case duty.Leaving == duty.Holder:
		lines = append(lines, duty.Holder+" was asked to hand it over, and no other member may have it")
	}
	if duty.Pinned != "" {
		lines = append(lines, "pinned to "+duty.Pinned)
	}
	for _, f := range duty.Failures {
		lines = append(lines, d.failureText(f))
	}
	return lines
}

// because is a reason as the end of a sentence; empty if there is none.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// failureText says that a member gave a duty up, and for how long it must wait.
func (d GroupDetail) failureText(f DutyFailure) string {
	line := f.Identity + " gave it up" + because(f.Because)
	if f.Count > 1 {
		line = fmt.Sprintf("%s gave it up, to blame %d times%s", f.Identity, f.Count, because(f.Because))
	}
	switch {
	case d.Now.IsZero():
		line += "; it may have it again from " + stamp(f.Until)
	case f.Until.After(d.Now):
		line += "; it may have it again in " + short(f.Until.Sub(d.Now))
	}
	return line
}

func (d GroupDetail) requestText(q GroupRequest) string {
	what := q.What + " of " + q.Duty
	switch {
	case q.What == "resigned":
		what = q.By + " gave up " + q.Duty + because(q.Because)
	case q.To != "":
		what += " to " + q.To + " for " + q.By
	default:
		what += " for " + q.By
	}
	if d.Now.IsZero() {
		return what + ", waits for the assigner since " + stamp(q.Since)
	}
	return what + ", waits for the assigner for " + d.age(q.Since)
}

// about says who of the members could have a duty, and who could not and why.
func (d GroupDetail) about(duty Duty) []field {
	var fs []field
	reasons := []string{
		"holds it", "can do it", "waits", "is not ready", "has no seat", "has a version that does not fit",
		"does not list it",
	}
	who := map[string][]string{}
	for _, m := range d.Members {
		reason := d.reason(duty, m)
		who[reason] = append(who[reason], m.Identity+" ("+m.Version+")")
	}
	for _, reason := range reasons {
		if len(who[reason]) > 0 {
			const most = 8
			fs = append(fs, field{reason, text.List(who[reason], most)})
		}
	}
	return fs
}

// reason says what a member is to a duty, as about lists it.
func (d GroupDetail) reason(duty Duty, m Member) string {
	waits := func(f DutyFailure) bool {
		return f.Identity == m.Identity && !d.Now.IsZero() && f.Until.After(d.Now)
	}
	switch {
	case m.Identity == duty.Holder:
		return "holds it"
	case !slices.Contains(m.Can, duty.Name):
		return "does not list it"
	case !duty.Declared.Fits(m.Version):
		return "has a version that does not fit"
	case m.Seat == "":
		return "has no seat"
	case !m.Ready:
		return "is not ready"
	case slices.ContainsFunc(duty.Failures, waits):
		return "waits"
	}
	return "can do it"
}

// holding says who has a duty: "a (2.0, 10.0.3.11:7000) for 3h, epoch 4294967338".
func (d GroupDetail) holding(duty Duty) string {
	if duty.Holder == "" {
		return "nobody"
	}
	var parts []string
	for _, part := range []string{duty.Version, duty.Address} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	line := duty.Holder
	if len(parts) > 0 {
		line += " (" + strings.Join(parts, ", ") + ")"
	}
	if duty.Since != nil {
		if d.Now.IsZero() {
			line += " since " + stamp(*duty.Since)
		} else {
			line += " for " + d.age(*duty.Since)
		}
	}
	if duty.Epoch != 0 {
		line += fmt.Sprintf(", epoch %d", duty.Epoch)
	}
	return line
}
