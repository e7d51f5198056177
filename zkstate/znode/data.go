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
	return encodeLine(valueHeader{v.Life}, v.Data, MaxValue)
}

// DecodeValue decodes a value. It ignores fields of the first line that it does not know.
func DecodeValue(body []byte) (Value, error) {
	var h valueHeader
	data, err := decodeLine(body, &h, MaxValue)
	if err == nil && h.Life < 1 {
		err = fmt.Errorf("value: life %d", h.Life)
	}
	if err != nil {
		return Value{}, err
	}
	return Value{h.Life, data}, nil
}

// encodeLine encodes a value of at most so many bytes after a line of JSON.
func encodeLine(header any, data []byte, most int) ([]byte, error) {
	if len(data) > most {
		return nil, fmt.Errorf("value: %d bytes are more than the %d allowed", len(data), most)
	}
	line, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), data...), nil
}

// decodeLine decodes the header of such a value, and returns the value.
func decodeLine(body []byte, header any, most int) ([]byte, error) {
	line, data, found := bytes.Cut(body[:min(len(body), maxValueHeader+most)], []byte("\n"))
	if !found || len(line) > maxValueHeader || len(body) > maxValueHeader+most {
		return nil, errors.New("value: it is no line of JSON and a value")
	}
	if err := json.Unmarshal(line, header); err != nil {
		return nil, fmt.Errorf("value: its first line is no JSON: %w", err)
	}
	if len(data) > most {
		return nil, fmt.Errorf("value: %d bytes are more than the %d allowed", len(data), most)
	}
	return bytes.Clone(data), nil
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
