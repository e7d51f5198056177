package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"muster/tasks"
)

// jsonTask is the line of a task.
type jsonTask struct {
	Task    *string `json:"task,omitempty"`
	Base64  []byte  `json:"base64,omitempty"` // instead of Task, if the task is not UTF-8
	Batch   string  `json:"batch"`
	Index   int64   `json:"index"`
	Attempt int     `json:"attempt"`
}

// jsonAnswer is the answer to it.
type jsonAnswer struct {
	Result json.RawMessage `json:"result"` // a string is the result; anything else is, as JSON
	Base64 []byte          `json:"base64"` // a result that is not UTF-8
	Error  *string         `json:"error"`
	Retry  *bool           `json:"retry"` // of an Error; absent: true
}

// maxJSONLine: an escaped character has at most six bytes, and there are the names.
func maxJSONLine(maxTask int64) int64 { return 6*maxTask + 4096 }

func writeJSONLine(to []byte, t *tasks.Task) ([]byte, error) {
	line := jsonTask{Batch: t.Batch, Index: t.Index, Attempt: t.Attempt}
	if utf8.Valid(t.Payload) {
		text := string(t.Payload)
		line.Task = &text
	} else {
		line.Base64 = t.Payload
	}
	b := bytes.NewBuffer(to)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(line)
	return b.Bytes(), err
}

func readJSONLine(line []byte) (a lineAnswer, err error) {
	var got jsonAnswer
	if err := json.Unmarshal(line, &got); err != nil {
		return a, fmt.Errorf("it is not JSON: %w", err)
	}
	switch {
	case got.Error != nil:
		return lineAnswer{failed: true, reason: *got.Error, never: got.Retry != nil && !*got.Retry}, nil
	case got.Base64 != nil:
		return lineAnswer{result: got.Base64}, nil
	case got.Result == nil:
		return a, errors.New(`it has neither "result" nor "error"`)
	}
	var text string
	if got.Result[0] == '"' && json.Unmarshal(got.Result, &text) == nil {
		return lineAnswer{result: []byte(text)}, nil
	}
	return lineAnswer{result: got.Result}, nil
}
