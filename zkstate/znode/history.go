package znode

import (
	"bytes"
	"encoding/json"
	"fmt"

	"muster/apply/history"
	"muster/resource"
)

// entryPrefix is that of the entries of a history. ZooKeeper appends ten digits.
const entryPrefix = "h-"

// Entry is the body of an entry in the history of a stack.
type Entry struct {
	// Op is random: after a lost reply, the writer recognises its own entry.
	Op string `json:"op"`
	history.Entry
}

// History is the folder of a stack's history.
func History(home, stack string) string { return resource.Join(Stack(home, stack), "history") }

// NewEntry is the path of the sequential znode that takes the next entry.
func NewEntry(home, stack string) string { return resource.Join(History(home, stack), entryPrefix) }

// EntryNumber reads the number from the name or path of an entry. Later entries have larger numbers.
func EntryNumber(name string) (int, error) { return number(name, entryPrefix) }

// EncodeEntry encodes an entry, its times in UTC and in whole seconds.
func EncodeEntry(e Entry) ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, fmt.Errorf("entry of a history: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // six bytes for each & of an address
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("entry of a history: %w", err)
	}
	body := bytes.TrimSpace(b.Bytes())
	if len(body) > history.MaxEntry {
		return nil, fmt.Errorf("entry of a history: %d bytes are more than the %d allowed", len(body), history.MaxEntry)
	}
	return body, nil
}

// DecodeEntry decodes an entry and checks it. It ignores fields that it does not know.
func DecodeEntry(data []byte) (Entry, error) {
	if len(data) > history.MaxEntry {
		return Entry{}, fmt.Errorf("entry of a history: %d bytes are more than the %d allowed",
			len(data), history.MaxEntry)
	}
	var e Entry
	if err := decodeJSON("entry of a history", data, &e); err != nil {
		return Entry{}, err
	}
	if err := e.Check(); err != nil {
		return Entry{}, fmt.Errorf("entry of a history: %w", err)
	}
	return e, nil
}
