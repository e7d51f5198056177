package zkmodel

import "strings"

// parentOf is the path of the parent; "" is the root's other name. ok is false without a slash.
func parentOf(path string) (parent string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", false
	}
	return path[:i], true
}

// validPath reports whether a znode may have the path. Source: PathUtils.validatePath.
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if path == "" || path[0] != '/' {
		return false
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return strings.IndexFunc(path, forbidden) < 0
}

// forbidden reports whether no path may hold the character. ZooKeeper looks at UTF-16 units, so it forbids all beyond
// the first 65536.
func forbidden(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}
