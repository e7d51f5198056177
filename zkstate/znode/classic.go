package znode

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A classic job is made by workers of the controller whose layout muster keeps: it has no Record, its children are
// its live workers, and what else belongs to it are siblings named after it.

// companionSuffixes make the names of a classic job's siblings, those that end in another one first.
func companionSuffixes() []string {
	return []string{
		"-dai-for-worker-id", // counter of ids
		"-dai-for-barrier",   // counter of arrivals
		"-dai",               // the one counter of the first prototype
		"-lock", "-barrier", "-job-master",
	}
}

// Companions finds the classic companions among the children of a root and maps each job to its own, sorted.
// isJob says which names are jobs by themselves, because they have a Record or are declared: they are nobody's
// companions, whatever they are called. A companion's job is such a job, or another of the names that is no companion
// itself; what a vanished job left behind is nobody's.
func Companions(names []string, isJob func(name string) bool) map[string][]string {
	of := map[string][]string{}
	candidate := make(map[string]bool, len(names)) // may have companions
	// Shorter names first: a job's name is known before its companions' are.
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

// companionOf is the job that name is a companion of by its suffix, or "".
func companionOf(name string, isJob func(name string) bool) string {
	for _, suffix := range companionSuffixes() {
		if base, ok := strings.CutSuffix(name, suffix); ok && isJob(base) {
			return base
		}
	}
	return ""
}

// IsCompanion reports whether path can be a companion of the job at jobPath, by its name alone.
func IsCompanion(path, jobPath string) bool {
	suffix, ok := strings.CutPrefix(path, jobPath)
	return ok && slices.Contains(companionSuffixes(), suffix)
}

// LooksClassic reports whether a znode without a Record is a classic job, by its body and the names of its
// children. A body that is not a roll says no whatever the children are called; an empty one leaves it to them.
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

// Curator's protected names: a prefix, a UUID, a dash, and then the name that was asked for.
const (
	protectedPrefix = "_c_"
	uuidSize        = 36
)

// StripProtected cuts Curator's 40 characters from the name of a protected znode. Any other name it returns as it is,
// and false.
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
