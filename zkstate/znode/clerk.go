package znode

import "fmt"

// MaxClerk is the maximum size of the clerk's memory, in bytes.
const MaxClerk = 64 << 10

// ClerkMemory is the body of clerk: what one clerk leaves to the next one. Seats are named by their znodes. All maps
// but that of Failures have one value for each duty.
type ClerkMemory struct {
	Pins     map[string]string             `json:"pins,omitempty"`     // seats
	HandOver map[string]string             `json:"handover,omitempty"` // seats that have to give the duty to another one
	Newest   map[string]string             `json:"newest,omitempty"`   // the version that counts as newest
	Paused   map[string]string             `json:"paused,omitempty"`   // by whom: user@host
	Failures map[string]map[string]Failure `json:"failures,omitempty"` // by duty and seat
	Why      map[string]string             `json:"why,omitempty"`      // why its holder has it, or why it is vacant
}

// Failure is what the clerk remembers of a member that gave a duty up.
type Failure struct {
	Count   int    `json:"count"`   // how often it was to blame
	Tries   int    `json:"tries"`   // how often it gave the duty up, to blame or not
	Until   int64  `json:"until"`   // it does not get the duty again before, in ms of ZooKeeper's time since 1970
	Because string `json:"because"` // of the last time, for people
}

// EncodeClerk encodes the memory. If it is too large it leaves out the reasons.
func EncodeClerk(c ClerkMemory) ([]byte, error) {
	body, err := encodeJSON("clerk", c)
	if err != nil || len(body) > MaxClerk {
		c.Why = nil
		body, err = encodeJSON("clerk", c)
	}
	if err == nil && len(body) > MaxClerk {
		err = fmt.Errorf("clerk: %d bytes are more than the %d allowed", len(body), MaxClerk)
	}
	return body, err
}

// DecodeClerk decodes the memory. An empty body is an empty memory.
func DecodeClerk(data []byte) (ClerkMemory, error) {
	var c ClerkMemory
	if len(data) == 0 {
		return c, nil
	}
	err := decodeJSON("clerk", data, &c)
	return c, err
}
