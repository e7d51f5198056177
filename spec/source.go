package spec

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

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
