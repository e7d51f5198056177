package roster

import (
	"fmt"
	"strings"
)

// Why is the reason for a holder, or for its lack. The assigner stores it: a value keeps its meaning for ever.
type Why string

// The reasons.
const (
	Starts     Why = "starts" // also of a vacant duty
	Keeps      Why = "keeps"
	Leads      Why = "leads"
	Waits      Why = "waits"
	Pinned     Why = "pinned"
	Newer      Why = "newer"
	HandedOver Why = "handed over"
	Evens      Why = "evens"
	Fills      Why = "fills"
	Only       Why = "only"

	// These say why a duty is vacant.
	Paused    Why = "paused"
	BackedOff Why = "backed off"
	Unfit     Why = "unfit"
)

// Unable counts the members that cannot do a duty, each at its first reason in this order.
type Unable struct {
	NotListed int // the member does not list the duty
	Version   int // its version does not fit
	NotReady  int
}

// Because says in words why the duty has its holder, or why nobody has it: the end of a sentence.
func (p Post) Because() string {
	text := p.words()
	if p.PinIdle {
		text += "; it is pinned to a member that cannot have it now"
	}
	return text
}

func (p Post) words() string {
	switch p.Why {
	case Keeps:
		return "it had the duty, and no further move makes the loads more even now"
	case Leads:
		return "a leader stays while its member lives"
	case Waits:
		return "it had the duty, and the members of another version may not have it yet"
	case Pinned:
		return "the duty is pinned to it"
	case Newer:
		return fmt.Sprintf("it has the preferred version, %s", p.Version)
	case HandedOver:
		return "the last holder was asked to hand over"
	case Evens:
		return "the loads are more even"
	case Fills:
		return fmt.Sprintf("the duty was vacant, and of %d eligible members this keeps the loads most even", p.Eligible)
	case Only:
		return "the duty was vacant, and no other member could have it then"
	case Paused:
		return "the duty is paused"
	case Starts:
		if p.Seat != Nobody {
			return "it had the duty, and the group starts"
		}
		return "the group starts, and every member is young"
	case BackedOff:
		return "every member that can do it has just given it up"
	case Unfit:
		return "no member can do it" + p.Unable.list()
	}
	return string(p.Why)
}

// list returns the counts: " (not ready: 2)". It is empty if there are no members.
func (u Unable) list() string {
	var counts []string
	for _, c := range []struct {
		what  string
		count int
	}{{"not listed", u.NotListed}, {"version", u.Version}, {"not ready", u.NotReady}} {
		if c.count > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", c.what, c.count))
		}
	}
	if counts == nil {
		return ""
	}
	return " (" + strings.Join(counts, ", ") + ")"
}
