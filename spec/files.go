package spec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"muster/text"
)

// listing names the files of a configuration directory, in the order of their names.
type listing struct {
	config   []string // *.hcl, *.hcl.json
	autoVars []string // *.auto.vars.hcl, *.auto.vars.hcl.json
	vars     []string // *.vars.hcl, *.vars.hcl.json, which are read only if an option names them
}

// scan lists the files of dir.
func (f *findings) scan(dir string) (listing, bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		f.directory(dir, err)
		return listing{}, false
	}
	var l listing
	var folders []string
	for _, e := range entries {
		name := e.Name()
		switch {
		case leftover(name):
		case e.IsDir():
			folders = append(folders, name)
		case hasSuffix(name, ".auto.vars.hcl"):
			l.autoVars = append(l.autoVars, name)
		case hasSuffix(name, ".vars.hcl"):
			l.vars = append(l.vars, name)
		case hasSuffix(name, policySuffix), hasSuffix(name, testSuffix): // these are about a configuration
		case hasSuffix(name, ".hcl"):
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
				continue // a link to a folder
			}
			l.config = append(l.config, name)
		}
	}
	if len(l.config) == 0 {
		f.noFiles(dir, folders)
		return listing{}, false
	}
	return l, true
}

// IsBeside reports whether a file of this name stands beside a configuration: it holds values, policies or tests.
func IsBeside(name string) bool {
	return hasSuffix(name, ".vars.hcl") || hasSuffix(name, policySuffix) || hasSuffix(name, testSuffix)
}

// hasSuffix reports whether a file name ends with suffix, or with suffix and ".json".
func hasSuffix(name, suffix string) bool {
	return strings.HasSuffix(strings.TrimSuffix(name, ".json"), suffix)
}

// leftover reports whether a file is hidden, or was left behind by an editor.
func leftover(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") ||
		strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#")
}

func (f *findings) directory(dir string, err error) {
	d := f.add(codeDirectory, nil, "%s cannot be read", dir)
	if !errors.Is(err, fs.ErrNotExist) {
		d.Detail = cause(err)
		return
	}
	d.Summary = fmt.Sprintf("there is no directory %s", dir)
	d.Help = "give the directory that holds the *.hcl files"
}

// noFiles points to the folders that the user may have meant: a configuration is not read recursively.
func (f *findings) noFiles(dir string, folders []string) {
	d := f.add(codeNoFiles, nil, "%s holds no *.hcl file", dir)
	var meant []string
	for _, name := range folders {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return hasSuffix(e.Name(), ".hcl") }) {
			meant = append(meant, filepath.Join(dir, name))
		}
	}
	if d.Help = "declare the jobs in a file such as jobs.hcl; muster init writes a first one"; len(meant) > 0 {
		d.Help = "folders are not searched; did you mean " + text.List(meant, 3) + "?"
	}
}

// read returns the text of a file, without its byte order mark, and remembers it under name for the snippets.
func (f *findings) read(path, name, code string) ([]byte, bool) {
	src, err := readSource(path)
	if err != nil {
		f.unreadable(name, code, err)
		return nil, false
	}
	return f.accept(src, name)
}

// unreadable reports why readSource did not read a file.
func (f *findings) unreadable(name, code string, err error) {
	if errors.As(err, new(tooLargeError)) {
		code = codeTooLarge
	}
	d := f.add(code, nil, "%s cannot be read: %s", name, cause(err))
	d.Range = &Range{Filename: name, Start: Pos(hcl.InitialPos), End: Pos(hcl.InitialPos)}
	if errors.Is(err, errOutside) {
		d.Help = "copy the file, or link one that is below the directory"
	}
}

// accept remembers the text of a file, and checks its size and that it is UTF-8.
func (f *findings) accept(src []byte, name string) ([]byte, bool) {
	if len(src) > MaxFile {
		f.unreadable(name, codeTooLarge, tooLargeError(len(src)))
		return nil, false
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	f.sources[name] = src
	if utf8.Valid(src) {
		return src, true
	}
	d := f.add(codeEncoding, invalidByte(src, name), "%s is not UTF-8 text", name)
	d.Help = "save the file as UTF-8"
	if bytes.HasPrefix(src, []byte{0xff, 0xfe}) || bytes.HasPrefix(src, []byte{0xfe, 0xff}) {
		d.Help = "the file is UTF-16: save it as UTF-8"
	}
	return nil, false
}

// invalidByte is the place of the first byte of a file that is not UTF-8.
func invalidByte(src []byte, name string) *hcl.Range {
	offset := 0
	for {
		r, size := utf8.DecodeRune(src[offset:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		offset += size
	}
	before := src[:offset]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	start := hcl.Pos{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(line), Byte: offset}
	end := start
	end.Byte, end.Column = end.Byte+1, end.Column+1
	return &hcl.Range{Filename: name, Start: start, End: end}
}

// cause is the reason in an error of the file system, without its operation and path.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return err.Error()
}

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
		return l.scan(l.dir)
	case hasSuffix(l.file, ".vars.hcl"):
		d := l.add(codeDirectory, nil, "%s holds values of variables, and is no configuration", path)
		d.Help = "give the file or directory with the jobs, and --var-file " + path
	case hasSuffix(l.file, policySuffix):
		d := l.add(codeDirectory, nil, "%s holds policies, and is no configuration", path)
		d.Help = "give the file or directory with the jobs, and --policy " + path
	case hasSuffix(l.file, testSuffix):
		d := l.add(codeDirectory, nil, "%s holds tests, and is no configuration", path)
		d.Help = "muster test " + l.dir
	case !hasSuffix(l.file, ".hcl"):
		d := l.add(codeDirectory, nil, "%s is no configuration", path)
		d.Help = "a configuration is a directory of *.hcl files, or one such file"
	default:
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			d := l.add(codeDirectory, nil, "there is no file %s", path)
			d.Help = "give the file that declares the jobs, or the directory that holds the *.hcl files"
			break
		}
		return listing{config: []string{l.file}}, true
	}
	return listing{}, false
}

// Why readSource refuses a file.
var (
	errOutside    = errors.New("it is a link that leads out of its directory")
	errNotRegular = errors.New("it is not a regular file")
)

// ReadSource reads a file that Format is to format. What it refuses, Load refuses too. name is what the findings call
// the file.
func ReadSource(path, name string) ([]byte, Diagnostics) {
	src, err := readSource(path)
	if err != nil {
		f := findings{}
		f.unreadable(name, codeFile, err)
		return nil, f.sorted()
	}
	return src, nil
}

// readSource reads a regular file of at most 2 MiB. The file may be a link if it stays below the directory that it is
// in, as in a Kubernetes ConfigMap. A link that leads elsewhere is refused: findings show lines of what they are about,
// and whoever may write a configuration must not have other files of this machine printed. So is what may block or has
// no end: a pipe, a device.
func readSource(path string) ([]byte, error) {
	dir, name := filepath.Split(path)
	root, err := os.OpenRoot(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if name, err = target(root, path, name); err != nil {
		return nil, err
	}
	return readRegular(root, name)
}

// readRegular reads a regular file below root, of at most MaxFile bytes.
func readRegular(root *os.Root, name string) ([]byte, error) {
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, errNotRegular) // it is not opened: opening a device may do something
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	case info.Size() > MaxFile:
		return nil, tooLargeError(info.Size())
	}
	src, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if len(src) > MaxFile { // it grows
		return nil, tooLargeError(len(src))
	}
	return src, err
}

// target is where the file at path is, by its name in root, the directory of path. root itself follows only relative
// links, and refuses all that lead out.
func target(root *os.Root, path, name string) (string, error) {
	info, err := root.Lstat(name)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return name, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return "", err
	}
	inside, err := filepath.Rel(dir, real)
	if err != nil || !filepath.IsLocal(inside) {
		return "", errOutside
	}
	return inside, nil
}

// tooLargeError is the size in bytes of a file that is too large.
type tooLargeError int64

func (e tooLargeError) Error() string {
	return fmt.Sprintf("it has %d bytes; a configuration file has at most %d", int64(e), MaxFile)
}
