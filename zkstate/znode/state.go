package znode

import (
	"fmt"

	"muster/resource"
)

// Limits of saved state.
const (
	MaxStateValue = 512 << 10 // bytes of one key: with the guards of its transaction it fits into ZooKeeper's 1 MiB
	MaxState      = 64 << 20  // bytes of a group
	MaxKeys       = 10_000    // keys of a duty
)

// SavedValue is what the holder of a duty has saved under a key. In its znode it is as a Value: a line of JSON, and the
// bytes.
type SavedValue struct {
	By    string // identity of the holder that wrote it
	Epoch int64  // of that holder
	Data  []byte // at most MaxStateValue bytes
}

// savedHeader is the first line of a SavedValue.
type savedHeader struct {
	By    string `json:"by"`
	Epoch int64  `json:"epoch"`
}

// StateTotal is the body of the folder of a duty's saved state.
type StateTotal struct {
	Bytes int64 `json:"bytes"` // of all values together
}

// CheckKey says why key is not a valid key of saved state, or returns nil: the rules of names hold.
func CheckKey(key string) error { return resource.CheckName("key", key) }

// EncodeSaved encodes a value.
func EncodeSaved(v SavedValue) ([]byte, error) {
	return encodeLine(savedHeader{v.By, v.Epoch}, v.Data, MaxStateValue)
}

// DecodeSaved decodes a value. It ignores fields of the first line that it does not know.
func DecodeSaved(body []byte) (SavedValue, error) {
	var h savedHeader
	data, err := decodeLine(body, &h, MaxStateValue)
	if err == nil && h.By == "" {
		err = fmt.Errorf("value: it does not say who wrote it")
	}
	return SavedValue{h.By, h.Epoch, data}, err
}

// DecodeStateTotal decodes the body of the folder. One that cannot be read, written by hand, is 0 bytes.
func DecodeStateTotal(body []byte) StateTotal {
	t, _ := Decode[StateTotal](body)
	return t
}

func (t StateTotal) check() error {
	if t.Bytes < 0 {
		return fmt.Errorf("bytes: %d must not be less than 0", t.Bytes)
	}
	return nil
}
