package znode

import (
	"encoding/hex"
	"fmt"

	"muster/resource"
)

// Limits of saved state.
const (
	MaxChunk      = 200 << 10 // bytes of one znode
	MaxStateValue = 16 << 20  // bytes of one key
	MaxState      = 64 << 20  // bytes of a group
	MaxKeys       = 10_000    // keys of a duty
)

// Manifest is the body of one key of saved state: where its value is. A key without one is not there: its first value
// is being written, or it is being removed.
type Manifest struct {
	Value  string `json:"value"`  // the folder of the chunks
	Chunks int    `json:"chunks"` // how many
	Bytes  int    `json:"bytes"`  // of all chunks together
	SHA256 string `json:"sha256"` // of the whole value, in hex
	By     string `json:"by"`     // identity of the holder that wrote it
	Epoch  int64  `json:"epoch"`  // of that holder
}

// StateTotal is the body of the folder of a duty's saved state.
type StateTotal struct {
	Bytes int `json:"bytes"` // of all keys together
	// Writing is how many bytes more there are while a value is written. It counts for the limit of the group. It stays
	// if the writer dies, until the next holder writes.
	Writing int `json:"writing,omitempty"`
}

// CheckKey says why key is not a valid key of saved state, or returns nil: the rules of names hold.
func CheckKey(key string) error { return resource.CheckName("key", key) }

// DecodeStateTotal decodes the body of the folder and checks it. An empty body is 0 bytes.
func DecodeStateTotal(data []byte) (StateTotal, error) {
	if len(data) == 0 {
		return StateTotal{}, nil
	}
	return Decode[StateTotal](data)
}

func (m Manifest) check() error {
	sum, err := hex.DecodeString(m.SHA256)
	switch {
	case CheckToken(m.Value) != nil:
		return fmt.Errorf("value: %w", CheckToken(m.Value))
	case err != nil || len(sum) != 32:
		return fmt.Errorf("sha256: %q is not one", m.SHA256)
	case m.Bytes < 0 || m.Bytes > MaxStateValue:
		return fmt.Errorf("bytes: %d is not between 0 and %d", m.Bytes, MaxStateValue)
	case m.Chunks != (m.Bytes+MaxChunk-1)/MaxChunk:
		return fmt.Errorf("chunks: %d do not hold %d bytes", m.Chunks, m.Bytes)
	}
	return nil
}

func (t StateTotal) check() error {
	if t.Bytes < 0 || t.Writing < 0 {
		return fmt.Errorf("bytes: %d and %d must not be less than 0", t.Bytes, t.Writing)
	}
	return nil
}
