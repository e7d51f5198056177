package znode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// MaxAssigner is the maximum size of the assigner's memory, in bytes.
const MaxAssigner = 64 << 10

// AssignerMemory is the body of assigner: what one assigner leaves to the next one. Seats are named by their znodes.
// All maps but that of Failures have one value for each duty.
type AssignerMemory struct {
	Pins     ByDuty                        `json:"pins,omitempty"`     // seats
	HandOver ByDuty                        `json:"handover,omitempty"` // seats that have to give the duty to another one
	Passed   []string                      `json:"passed,omitempty"`   // seats that were passed over, sorted
	Size     int                           `json:"size,omitempty"`     // how many members could do a declared duty
	Newest   ByDuty                        `json:"newest,omitempty"`   // the version that counts as newest
	Paused   ByDuty                        `json:"paused,omitempty"`   // by whom: user@host
	Failures map[string]map[string]Failure `json:"failures,omitempty"` // by duty and seat
	Purge    []string                      `json:"purge,omitempty"`    // duties whose trees are being deleted, sorted
	Why      ByDuty                        `json:"why,omitempty"`      // why its holder has it, or why it is vacant
}

// Failure is what the assigner remembers of a member that gave a duty up.
type Failure struct {
	Count   int    `json:"count"`   // how often it was to blame
	Tries   int    `json:"tries"`   // how often it gave the duty up, to blame or not
	Until   int64  `json:"until"`   // it does not get the duty again before, in ms of ZooKeeper's time since 1970
	Because string `json:"because"` // of the last time, for people
}

// ByDuty has one text for each duty. Many duties have the same one, so in JSON it is a list of duties for each text.
type ByDuty map[string]string

// MarshalJSON implements json.Marshaler.
func (b ByDuty) MarshalJSON() ([]byte, error) {
	duties := map[string][]string{}
	for _, d := range slices.Sorted(maps.Keys(b)) {
		duties[b[d]] = append(duties[b[d]], d)
	}
	return json.Marshal(duties)
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *ByDuty) UnmarshalJSON(body []byte) error {
	var duties map[string][]string
	if err := json.Unmarshal(body, &duties); err != nil {
		return err
	}
	*b = ByDuty{}
	for _, text := range slices.Sorted(maps.Keys(duties)) {
		for _, d := range duties[text] {
			(*b)[d] = text
		}
	}
	return nil
}

// EncodeAssigner encodes the memory. If it is too large, it leaves out as much as it must: reasons first, then the
// failures that ended their pause first, then the rest, requests to pause last.
func EncodeAssigner(c AssignerMemory) ([]byte, error) {
	body, err := encodeJSON("assigner", c)
	if err == nil && len(body) <= MaxAssigner {
		return body, nil
	}
	for _, limit := range []func(n int) (of int){
		limitTexts(&c.Why), limitFailures(&c.Failures), limitTexts(&c.Newest), limitTexts(&c.HandOver), limitTexts(&c.Pins),
		limitTexts(&c.Paused),
	} {
		fits := func(n int) bool {
			limit(n)
			body, err = encodeJSON("assigner", c)
			return err == nil && len(body) <= MaxAssigner
		}
		all := limit(0)
		if n := sort.Search(all+1, func(n int) bool { return !fits(n) }); n > 0 {
			fits(n - 1)
			return body, nil
		}
		limit(0)
	}
	return nil, fmt.Errorf("assigner: it is more than the %d bytes allowed", MaxAssigner)
}

// limitTexts returns a function that keeps the texts of the first n duties. It returns how many there are.
func limitTexts(b *ByDuty) func(n int) (of int) {
	all := *b
	duties := slices.Sorted(maps.Keys(all))
	return func(n int) int {
		*b = ByDuty{}
		for _, d := range duties[:min(n, len(duties))] {
			(*b)[d] = all[d]
		}
		return len(duties)
	}
}

// limitFailures returns a function that keeps the n newest failures. It returns how many there are.
func limitFailures(failures *map[string]map[string]Failure) func(n int) (of int) {
	type at struct {
		duty, seat string
		until      int64
	}
	all := *failures
	var order []at
	for d, bySeat := range all {
		for seat, f := range bySeat {
			order = append(order, at{d, seat, f.Until})
		}
	}
	slices.SortFunc(order, func(a, b at) int {
		return cmp.Or(cmp.Compare(b.until, a.until), cmp.Compare(a.duty, b.duty), cmp.Compare(a.seat, b.seat))
	})
	return func(n int) int {
		*failures = map[string]map[string]Failure{}
		for _, a := range order[:min(n, len(order))] {
			if (*failures)[a.duty] == nil {
				(*failures)[a.duty] = map[string]Failure{}
			}
			(*failures)[a.duty][a.seat] = all[a.duty][a.seat]
		}
		return len(order)
	}
}

// DecodeAssigner decodes the memory. An empty body is an empty memory.
func DecodeAssigner(data []byte) (AssignerMemory, error) {
	var c AssignerMemory
	switch {
	case len(data) == 0:
		return c, nil
	case len(data) > MaxAssigner:
		return c, fmt.Errorf("assigner: %d bytes are more than the %d allowed", len(data), MaxAssigner)
	}
	err := decodeJSON("assigner", data, &c)
	return c, err
}
