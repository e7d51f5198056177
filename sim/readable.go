package sim

// readable replaces in a path what differs from run to run: ids of at least 16 hexadecimal digits, and UUIDs.
func readable(path string) string {
	for i := 0; i < len(path); i++ {
		n := idLength(path[i:])
		if n > 0 {
			path = path[:i] + "<id>" + path[i+n:]
			i += len("<id>")
			continue
		}
		for i < len(path) && isHex(path[i]) {
			i++
		}
	}
	return path
}

// idLength is the length of the id with which s begins; 0 if it begins with none.
func idLength(s string) int {
	digits := 0
	for digits < len(s) && isHex(s[digits]) {
		digits++
	}
	if digits >= 16 {
		return digits
	}
	const uuid = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if digits != 8 || len(s) < len(uuid) {
		return 0
	}
	for i := range len(uuid) {
		if uuid[i] == 'x' && !isHex(s[i]) || uuid[i] == '-' && s[i] != '-' {
			return 0
		}
	}
	return len(uuid)
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }
