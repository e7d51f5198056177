package storemodel

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Frame is the length in bytes of the first whole request in b, an array of bulk strings; 0: it has not come in whole.
// An error says that b is no request.
func Frame(b []byte) (n int, err error) {
	count, at, err := number(b, 0, '*')
	for ; err == nil && at > 0 && count > 0; count-- {
		var size int
		if size, at, err = number(b, at, '$'); at > 0 {
			if at += size + len(crlf); at > len(b) {
				return 0, nil
			}
		}
	}
	return at, err
}

const crlf = "\r\n"

// number reads a number after a mark, and where what follows begins; 0: it has not come in whole.
func number(b []byte, at int, mark byte) (n, next int, err error) {
	end := bytes.Index(b[at:], []byte(crlf))
	if end < 0 {
		return 0, 0, nil
	}
	line := b[at : at+end]
	if len(line) == 0 || line[0] != mark {
		return 0, 0, fmt.Errorf("not RESP: %q where %q is expected", line, mark)
	}
	if n, err = strconv.Atoi(string(line[1:])); err != nil || n < 0 {
		return 0, 0, fmt.Errorf("not RESP: %q", line)
	}
	return n, at + end + len(crlf), nil
}

// Words are those of one whole request.
func Words(request []byte) []string {
	count, at, _ := number(request, 0, '*')
	words := make([]string, count)
	for i := range words {
		var size int
		size, at, _ = number(request, at, '$')
		words[i] = string(request[at : at+size])
		at += size + len(crlf)
	}
	return words
}

// encode appends a reply: int64, string, []any, Refused, or nil, which is the array that is not there.
func encode(to []byte, reply any) []byte {
	switch v := reply.(type) {
	case int64:
		return fmt.Appendf(to, ":%d\r\n", v)
	case string:
		return fmt.Appendf(to, "$%d\r\n%s\r\n", len(v), v)
	case Refused:
		return fmt.Appendf(to, "-%s\r\n", strings.NewReplacer("\r", " ", "\n", " ").Replace(string(v)))
	case []any:
		to = fmt.Appendf(to, "*%d\r\n", len(v))
		for _, item := range v {
			to = encode(to, item)
		}
		return to
	case nil:
		return append(to, "*-1\r\n"...)
	}
	panic(fmt.Sprintf("a reply of type %T", reply))
}
