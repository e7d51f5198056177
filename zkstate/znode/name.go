package znode

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"muster/resource"
)

// The maximum lengths of an identity and a token, in characters.
const (
	maxIdentity = 255
	maxToken    = 64
)

// CheckIdentity says why s is not a valid identity of a worker, or returns nil. An identity is the name of a znode, and
// has 1 to 255 printable characters without a slash, such as "[::1]:7000".
func CheckIdentity(s string) error {
	switch n := utf8.RuneCountInString(s); {
	case s == "":
		return fmt.Errorf("an identity must not be empty")
	case s == "." || s == ".." || s == resource.Reserved:
		return fmt.Errorf("%q cannot be an identity", s)
	case n > maxIdentity:
		return fmt.Errorf("an identity has at most %d characters; this one has %d", maxIdentity, n)
	case !utf8.ValidString(s):
		return fmt.Errorf("an identity must be UTF-8; %q is not", s)
	}
	for _, r := range s {
		if r == '/' || !unicode.IsPrint(r) || !inZooKeeper(r) {
			return fmt.Errorf("an identity may hold printable characters but '/', not %q", r)
		}
	}
	return nil
}

// inZooKeeper reports whether the server accepts r in a path. It looks at UTF-16 code units: it refuses surrogates, the
// private use area and the specials.
func inZooKeeper(r rune) bool { return r < 0xd800 || 0xf8ff < r && r < 0xfff0 }

// CheckToken says why s is not a valid random name of muster's (a generation, a plan id), or returns nil. A token has 1
// to 64 characters of A-Z a-z 0-9 _ -.
func CheckToken(s string) error {
	if s == "" {
		return fmt.Errorf("it is empty")
	}
	if len(s) > maxToken {
		return fmt.Errorf("it has %d characters; at most %d are allowed", len(s), maxToken)
	}
	for _, r := range s {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-') {
			return fmt.Errorf("%q may hold letters, digits, '_' and '-', not %q", s, r)
		}
	}
	return nil
}
