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

// writeFile replaces the file at path, or leaves it as it was: it writes a temporary file beside it and renames that.
// It keeps the mode of the file, follows links, and writes directly to what is not a regular file (a pipe,
// /dev/stdout).
func writeFile(path string, data []byte) error {
	old, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.Mode().IsRegular(): // a pipe in /dev/fd can be opened, but its link cannot be resolved
		return writeInPlace(path, data)
	}
	path = resolveLinks(path)
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8]+".tmp")
	if err := createFile(temp, data, old); err != nil {
		_ = os.Remove(temp)
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) { // the user does not know the temporary file
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

// resolveLinks follows the links at path, also to a file that does not exist yet.
func resolveLinks(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		return target
	}
	link, linkErr := os.Readlink(path)
	if !errors.Is(err, fs.ErrNotExist) || linkErr != nil { // a circle of links: opening it will fail
		return path
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && !filepath.IsAbs(link) {
		link = filepath.Join(dir, link)
	}
	return resolveLinks(link)
}

// isConfigFile reports whether muster would read a file of this name as configuration.
func isConfigFile(path string) bool {
	return strings.HasSuffix(strings.TrimSuffix(path, ".json"), ".hcl")
}

// sameFile reports whether writing to a and writing to b would replace the same regular file.
func sameFile(a, b string) bool {
	for _, path := range []string{a, b} {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return false
		}
	}
	whole, errA := filepath.Abs(resolveLinks(a))
	other, errB := filepath.Abs(resolveLinks(b))
	return errA == nil && errB == nil && whole == other
}

// createFile writes a new file and syncs it. It takes the mode of old, unless that is nil.
func createFile(path string, data []byte, old fs.FileInfo) error {
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

// Limits of the files that are read, in bytes.
const (
	maxCredentials = 64 << 10
	maxTLSFile     = 1 << 20
)

// readBounded reads a regular file of at most limit bytes. It refuses others: a pipe may block, a device may have no
// end.
func readBounded(path string, limit int64) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, usagef("name a file in it", "%s is a directory", path)
	case !info.Mode().IsRegular():
		return nil, usagef("write what it gives into a file, and name that", "%s is not a regular file", path)
	case info.Size() > limit:
		return nil, largerThan(path, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(body)) > limit { // it grows
		return nil, largerThan(path, limit)
	}
	return body, err
}

func largerThan(path string, limit int64) error {
	return usagef("check the name of the file", "%s has more than %d bytes", path, limit)
}
