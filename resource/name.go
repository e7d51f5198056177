package resource

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// Reserved is the folder below every root that holds muster's own znodes. No resource may have this name.
	Reserved = ".muster"
	// MaxName is the maximum length of a name: in bytes, which are as many as its characters.
	MaxName = 128
	// DefaultRoot is the root of resources that are declared without one.
	DefaultRoot = "/muster"
	// DefaultHome holds the locks, the index of stacks, the ensemble's id and the marks of applied plans.
	DefaultHome = "/" + Reserved
)

// Join appends names to a znode path, which may be "/".
func Join(dir string, names ...string) string {
	p := strings.TrimSuffix(dir, "/")
	for _, n := range names {
		p += "/" + n
	}
	return p
}

// InField is err, behind the name of the field whose value it refuses; nil if err is.
func InField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// Wrapf says in an error, unless it is nil, what was attempted: defer it.
func Wrapf(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// CheckName says why name is not a valid name of a kind ("job", "stack"), or returns nil. A name has 1 to 128
// characters of A-Z a-z 0-9 . _ -; the first is a letter or a digit.
func CheckName(kind, name string) error { return CheckShortName(kind, name, MaxName) }

// CheckShortName is CheckName for names of at most so many characters.
func CheckShortName(kind, name string, most int) error {
	switch {
	case name == "":
		return fmt.Errorf("a %s name must not be empty", kind)
	case name == Reserved:
		return fmt.Errorf("the name %q is reserved for muster's own znodes", name)
	case len(name) > most:
		return fmt.Errorf("a %s name has at most %d characters; this one has %d", kind, most, len(name))
	}
	for i, r := range name {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if i == 0 && !alnum {
			return fmt.Errorf("a %s name starts with a letter or a digit, not %q", kind, r)
		}
		if !alnum && r != '.' && r != '_' && r != '-' {
			return fmt.Errorf("a %s name may hold letters, digits, '.', '_' and '-', not %q", kind, r)
		}
	}
	return nil
}

// CheckPrintable says why name is not 1 to so many printable characters, or returns nil. what is called so, with its
// article. It may not hold the runes that bad reports; but says which those are.
func CheckPrintable(what, name string, most int, but string, bad func(r rune) bool) error {
	switch n := utf8.RuneCountInString(name); {
	case name == "":
		return fmt.Errorf("%s must not be empty", what)
	case n > most:
		return fmt.Errorf("%s has at most %d characters; this one has %d", what, most, n)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s must be UTF-8; %q is not", what, name)
	}
	for _, r := range name {
		if bad(r) || !unicode.IsPrint(r) {
			return fmt.Errorf("%s may hold printable characters %s, not %q", what, but, r)
		}
	}
	return nil
}

// CheckHome says why home is not a valid home of locks and applied plans, or returns nil. A home is a valid root, or
// the folder .muster in one or at the top.
func CheckHome(home string) error {
	if dir, ok := strings.CutSuffix(home, "/"+Reserved); ok {
		if dir == "" {
			return nil
		}
		home = dir
	}
	if err := CheckRoot(home); err != nil {
		return fmt.Errorf("%s", strings.Replace(err.Error(), "a root", "home", 1))
	}
	return nil
}

// CheckRoot says why path is not a valid root, or returns nil. A root is an absolute, clean znode path. It is not "/",
// not "/zookeeper" or below it, and not inside a ".muster" folder.
func CheckRoot(path string) error {
	switch {
	case path == "/" || path == "":
		return fmt.Errorf("%q cannot be a root: choose a folder such as %q", path, DefaultRoot)
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("a root is an absolute znode path: write %q", "/"+path)
	case strings.HasSuffix(path, "/"):
		return fmt.Errorf("a root has no slash at its end: write %q", strings.TrimRight(path, "/"))
	case path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/"):
		return fmt.Errorf("%q belongs to ZooKeeper itself", path)
	case len(path) > 512:
		return fmt.Errorf("a root has at most 512 characters; this one has %d", len(path))
	}
	for _, part := range strings.Split(path[1:], "/") {
		if part == Reserved {
			return fmt.Errorf("%q lies inside a %s folder, which holds muster's own znodes", path, Reserved)
		}
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q is not a clean path", path)
		}
		for _, r := range part {
			if r < 0x20 || r >= 0x7f {
				return fmt.Errorf("a root may hold printable ASCII characters, not %q", r)
			}
		}
	}
	return nil
}
