package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
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
	err = createFile(temp, data, old)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) { // the user does not know the temporary file
		pathErr.Path = path
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
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
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, usagef("check the name of the file", "%s has more than %d bytes", path, limit)
	}
	return body, err
}

// writeOutput writes a plan file or a report, unless checkOutput refuses path.
func writeOutput(path string, data []byte) error {
	if err := checkOutput(path); err != nil {
		return err
	}
	return writeFile(path, data)
}

// checkOutput refuses what a plan file or a report must not be written to: configuration, also through links; a file,
// a pipe or a link that somebody else has put where everybody may put files; a disk.
func checkOutput(path string) error {
	for _, at := range []string{path, resolveLinks(path)} {
		if isConfigFile(at) {
			return usagef("give the file another name, such as plan.json or plan.md",
				"%s is the name of configuration, which it would replace", at)
		}
		if strangers(at) {
			return usagef("name a file in a directory of your own",
				"%s belongs to somebody else, in a directory where everybody may put files", at)
		}
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice {
		return usagef("name a file", "%s is a disk", path)
	}
	return nil
}

// strangers reports whether somebody else has put the file at path where everybody may put files, such as /tmp. Linux
// refuses to open such files too (fs.protected_regular and its like), but not to give a new file their mode.
func strangers(path string) bool {
	file, err := os.Lstat(path)
	if err != nil {
		return false
	}
	dir, err := os.Stat(filepath.Dir(path))
	return err == nil && isStrangers(owner(file), owner(dir), os.Geteuid(), dir.Mode())
}

// isStrangers reports whether a file belongs neither to user me nor to the owner of its directory, although others may
// put files into that directory and not remove those of each other.
func isStrangers(file, dir, me int, mode fs.FileMode) bool {
	shared := mode&fs.ModeSticky != 0 && mode.Perm()&0o022 != 0
	return shared && file != me && file != dir
}

func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// readerPatience is how long the reader of a pipe may take nothing.
const readerPatience = 30 * time.Second

// writeInPlace writes to what is no regular file. It does not wait for somebody to open a pipe, nor for ever for its
// reader.
func writeInPlace(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return &problem{nil, fmt.Errorf("nobody reads the pipe %s", path), "start its reader first, or name a file"}
	}
	if err != nil {
		return err
	}
	for len(data) > 0 && err == nil {
		n := min(len(data), 4096)
		_ = f.SetWriteDeadline(time.Now().Add(readerPatience)) // a device may have none
		_, err = f.Write(data[:n])
		data = data[n:]
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the reader of the pipe %s took nothing for %s", path, readerPatience)
	}
	return errors.Join(err, f.Close())
}

// interruptible calls do, and returns what it returns, or why ctx ended: then do goes on until the process ends.
func interruptible[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := do()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}
