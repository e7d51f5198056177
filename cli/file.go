package cli

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// writeFile puts data into the file at path, or leaves the file as it was: it writes a neighbour and renames it. The
// mode of an existing file is kept, a link stays a link, and what is not a regular file (a pipe, /dev/stdout) is
// written to as it stands.
func writeFile(path string, data []byte) error {
	old, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.Mode().IsRegular(): // the name of a pipe in /dev/fd leads nowhere, and yet can be opened
		return overwrite(path, data)
	}
	path = followed(path)
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8]+".tmp")
	if err := create(temp, data, old); err != nil {
		_ = os.Remove(temp)
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) { // the neighbour's name tells nobody anything
			pathErr.Path = path
		}
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// followed is where a link leads, also one that leads to a file yet to be made.
func followed(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		return target
	}
	link, linkErr := os.Readlink(path)
	if !errors.Is(err, fs.ErrNotExist) || linkErr != nil { // links in a circle are left to fail
		return path
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && !filepath.IsAbs(link) {
		link = filepath.Join(dir, link)
	}
	return followed(link)
}

// isSource reports whether a file of this name would be read as configuration.
func isSource(path string) bool { return strings.HasSuffix(strings.TrimSuffix(path, ".json"), ".hcl") }

// oneFile reports whether what is written to one of two paths would take the place of what was written to the other.
func oneFile(a, b string) bool {
	for _, path := range []string{a, b} {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return false
		}
	}
	whole, errA := filepath.Abs(followed(a))
	other, errB := filepath.Abs(followed(b))
	return errA == nil && errB == nil && whole == other
}

// create writes a new file that is on the disk when it returns. It takes the mode of old, if there is one.
func create(path string, data []byte, old fs.FileInfo) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if old != nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Bounds of what is read, in bytes.
const (
	maxCredentials = 64 << 10
	maxTLSFile     = 1 << 20
	maxSource      = 32 << 20 // of HCL
)

// readBounded reads a regular file of at most so many bytes. Anything else would be waited for, or has no end.
func readBounded(path string, most int64) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, usagef("write what it gives into a file, and name that", "%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(body)) > most {
		return nil, usagef("check the name of the file", "%s has more than %d bytes", path, most)
	}
	return body, err
}

func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
