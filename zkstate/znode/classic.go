package znode

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Workers of the classic controller make a classic job; muster keeps their layout. It has no Record, and its children
// are its live workers. Its other znodes are siblings, whose names start with its name: its companions.

// companionSuffixes are the ends of companions' names. A suffix that ends in another one comes before that.
func companionSuffixes() []string {
	return []string{
		"-dai-for-worker-id", // counter of ids
		"-dai-for-barrier",   // counter of arrivals
		"-dai",               // the one counter of the first prototype
		"-lock", "-barrier", "-job-master",
	}
}

// Companions maps each job to its companions among names, the children of a root, sorted. isJob reports whether a name
// is a job because it has a Record or is declared; such a name is never a companion. The job of a companion is one of
// these, or another name that is no companion itself. A companion whose job is gone is left out.
func Companions(names []string, isJob func(name string) bool) map[string][]string {
	of := map[string][]string{}
	candidate := make(map[string]bool, len(names)) // may have companions
	// Shorter names come first: the name of a job is shorter than those of its companions.
	shorter := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(slices.Values(names), shorter) {
		base := ""
		if !isJob(name) {
			base = companionOf(name, func(b string) bool { return candidate[b] || isJob(b) })
		}
		if base == "" {
			candidate[name] = true
			continue
		}
		of[base] = append(of[base], name)
	}
	for _, companions := range of {
		slices.Sort(companions)
	}
	return of
}

// companionOf is the job of the companion name, by its suffix; "" if name is no companion.
func companionOf(name string, isJob func(name string) bool) string {
	for _, suffix := range companionSuffixes() {
		if base, ok := strings.CutSuffix(name, suffix); ok && isJob(base) {
			return base
		}
	}
	return ""
}

// IsCompanion reports whether path has the name of a companion of the job at jobPath.
func IsCompanion(path, jobPath string) bool {
	suffix, ok := strings.CutPrefix(path, jobPath)
	return ok && slices.Contains(companionSuffixes(), suffix)
}

// LooksClassic reports whether a znode without a Record is a classic job: its body is a roll, or it is empty and a
// child is called like an address.
func LooksClassic(body []byte, children []string) bool {
	if len(body) > 0 {
		_, ws, _ := decodeRoll(body)
		return slices.ContainsFunc(ws, func(w Worker) bool { return w.IP != "" })
	}
	return slices.ContainsFunc(children, func(child string) bool {
		name, _ := StripProtected(child)
		return isAddress(name)
	})
}

// isAddress reports whether name is host:port, split at the last colon.
func isAddress(name string) bool {
	colon := strings.LastIndexByte(name, ':')
	if colon < 1 {
		return false
	}
	port, err := strconv.ParseUint(name[colon+1:], 10, 16)
	return err == nil && port > 0
}

// Curator's protected names consist of a prefix, a UUID, a dash and the requested name.
const (
	protectedPrefix = "_c_"
	uuidSize        = 36
)

// StripProtected removes Curator's 40 characters from the name of a protected znode. It returns any other name
// unchanged, and false.
func StripProtected(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, protectedPrefix)
	if !ok || len(rest) <= uuidSize || rest[uuidSize] != '-' || !isUUID(rest[:uuidSize]) {
		return name, false
	}
	return rest[uuidSize+1:], true
}

// isUUID reports whether s has the canonical form: 8-4-4-4-12 hexadecimal digits.
func isUUID(s string) bool {
	for i, c := range []byte(s) {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return false
			}
		}
	}
	return len(s) == uuidSize
}
