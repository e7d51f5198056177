package wrap

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// tailSize is how much of what a command wrote is kept, in bytes.
const tailSize = 4 << 10

// tail is the end of what a command wrote.
type tail struct{ buf []byte }

func (t *tail) add(b []byte) {
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - tailSize; n > tailSize {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
}

// last is the end of it, at most so many bytes, as text.
func (t *tail) last(most int) []byte {
	b := t.buf
	if n := len(b) - most; n > 0 {
		b = b[n:]
		for len(b) > 0 && !utf8.RuneStart(b[0]) {
			b = b[1:]
		}
	}
	return bytes.ToValidUTF8(b, []byte("\uFFFD"))
}

// lineSize is how much of a line is kept for a reason.
const lineSize = 300

// lastLine is the last line that is not empty.
func (t *tail) lastLine() string {
	text := strings.TrimSpace(string(t.last(tailSize)))
	line := text[strings.LastIndexByte(text, '\n')+1:]
	return strings.TrimSpace(cut(line, lineSize))
}

// after is a reason and the last line: what the command said before it failed.
func (t *tail) after(reason string) string {
	if line := t.lastLine(); line != "" {
		return reason + ": " + line
	}
	return reason
}

// cut is text, or its begin and an ellipsis.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
