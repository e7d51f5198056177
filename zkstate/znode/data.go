package znode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"muster/resource"
)

// MaxValue is how many bytes a published value may have.
const MaxValue = 64 << 10

// maxValueHeader bounds the first line of a published value.
const maxValueHeader = 1 << 10

// Value is what a worker has published under a key. In its znode it is one line of JSON, a newline, and the bytes of
// the value as they are.
type Value struct {
	Life int    // number of the life of the identity that wrote it, from 1: Claim.Lives
	Data []byte // at most MaxValue bytes
}

// valueHeader is the first line of a Value.
type valueHeader struct {
	Life int `json:"life"`
}

// Data is the znode of a value: a child of the id of the worker that has published it, so it goes with the generation.
func Data(root, g string, id int, key string) string { return resource.Join(ID(root, g, id), key) }

// EncodeValue encodes a value.
func EncodeValue(v Value) ([]byte, error) {
	if v.Life < 1 {
		return nil, fmt.Errorf("value: there is no life %d", v.Life)
	}
	if len(v.Data) > MaxValue {
		return nil, fmt.Errorf("value: %d bytes are more than the %d allowed", len(v.Data), MaxValue)
	}
	line, err := json.Marshal(valueHeader{v.Life})
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), v.Data...), nil
}

// DecodeValue decodes a value. It ignores fields of the first line that it does not know.
func DecodeValue(body []byte) (Value, error) {
	line, data, found := bytes.Cut(body[:min(len(body), maxValueHeader+MaxValue)], []byte("\n"))
	if !found || len(line) > maxValueHeader || len(body) > maxValueHeader+MaxValue {
		return Value{}, errors.New("value: it is no line of JSON and a value")
	}
	var h valueHeader
	if err := json.Unmarshal(line, &h); err != nil {
		return Value{}, fmt.Errorf("value: its first line is no JSON: %w", err)
	}
	if h.Life < 1 || len(data) > MaxValue {
		return Value{}, fmt.Errorf("value: life %d, %d bytes", h.Life, len(data))
	}
	return Value{h.Life, bytes.Clone(data)}, nil
}

// EncodeShared encodes the body of the folder of claims: how many bytes of the room that all workers share are taken.
func EncodeShared(taken int) []byte { return strconv.AppendInt(nil, int64(taken), 10) }

// DecodeShared decodes the body of the folder of claims. An empty body is 0.
func DecodeShared(body []byte) (int, error) {
	if len(body) == 0 {
		return 0, nil
	}
	n, err := strconv.Atoi(string(body[:min(len(body), 20)]))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("shared room: %.20q is no number of bytes", body)
	}
	return n, nil
}
