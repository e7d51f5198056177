package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

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

// owner is the id of the user to whom a file belongs.
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
