package queues_test

import "regexp"

// kinds are the transactions of package tasks that have guards, by what is in their operations: the first that fits.
var kinds = []struct {
	name string
	ops  *regexp.Regexp
}{
	{"join", regexp.MustCompile(`check .*/gate, .*create /q/\.muster/run/<id>/seat/s-<seq>`)},
	{"submit", regexp.MustCompile(`check .*/gate, .*create /q/\.muster/run/<id>/batch/`)},
	{"end a batch", regexp.MustCompile(`delete /q/\.muster/run/<id>/batch/[^,]*, .*/ended/`)},
	{"take a manifest back", regexp.MustCompile(`^delete /q/\.muster/run/<id>/batch/[^,]*$`)},
	{"write a manifest", regexp.MustCompile(`^set /q/\.muster/run/<id>/batch/[^,]*$`)},
}

// kind names a transaction; those of others, such as apply, keep their operations.
func kind(ops string) string {
	for _, k := range kinds {
		if k.ops.MatchString(ops) {
			return k.name
		}
	}
	return ops
}

// own tells which transactions belong to this package: those of processes of a queue.
func own(kind string) bool {
	for _, k := range kinds {
		if k.name == kind {
			return true
		}
	}
	return false
}

// batches gives all batches one name.
func batches(path string) string { return batchPath.ReplaceAllString(path, "${1}<batch>") }

var batchPath = regexp.MustCompile(`(/run/[^/]*/(?:batch|ended/[^/]*)/)[^/@]+`)
