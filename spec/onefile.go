package spec

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// splitPath returns the directory of a configuration and, if it is a single file, the name of that. What is not there
// is a file if it is named like one.
func splitPath(path string) (dir, file string) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() || errors.Is(err, fs.ErrNotExist) && hasSuffix(path, ".hcl") {
		return filepath.Split(path)
	}
	return path, ""
}

// files lists what to read. Beside a single file nothing is: neither other files nor their values.
func (l *loader) files() (listing, bool) {
	switch path := filepath.Join(l.dir, l.file); {
	case l.file == "":
		l.dir = cmp.Or(l.dir, ".")
		return l.scan(l.dir)
	case hasSuffix(l.file, ".vars.hcl"):
		d := l.add(codeDirectory, nil, "%s holds values of variables, and is no configuration", path)
		d.Help = "give the file or directory with the jobs, and --var-file " + path
	case !hasSuffix(l.file, ".hcl"):
		d := l.add(codeDirectory, nil, "%s is no configuration", path)
		d.Help = "a configuration is a directory of *.hcl files, or one such file"
	default:
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			d := l.add(codeDirectory, nil, "there is no file %s", path)
			d.Help = "give the file that declares the jobs, or the directory that holds the *.hcl files"
			break
		}
		l.dir = cmp.Or(l.dir, ".")
		return listing{config: []string{l.file}}, true
	}
	return listing{}, false
}
