package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// source is a source tree, and what every release of it has.
type source struct {
	dir    string
	git    bool      // it is the top of a repository
	time   time.Time // of the commit, or SOURCE_DATE_EPOCH
	shared []file    // by name: documentation and examples
}

// file is a file of an archive. Its mode is 0755 or 0644.
type file struct {
	name       string
	body       []byte
	executable bool
}

// noTime is the time of a tree that has no commit: the earliest that every format of archives can hold.
var noTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

func readSource(ctx context.Context, dir string) (source, error) {
	s := source{dir: dir, time: noTime}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return s, fmt.Errorf("run it where go.mod is: %w", err)
	}
	var err error
	if s.git, err = inGit(ctx, dir); err != nil {
		return s, err
	}
	if s.git {
		seconds, err := output(ctx, dir, "git", "log", "-1", "--format=%ct")
		if err == nil {
			s.time, err = parseTime(seconds)
		}
		if err != nil {
			return s, err
		}
	}
	if seconds := os.Getenv("SOURCE_DATE_EPOCH"); seconds != "" {
		at, err := parseTime(seconds)
		if err != nil {
			return s, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		s.time = at
	}
	names, err := sourceNames(ctx, dir, s.git)
	for _, name := range names {
		if !isShared(name) {
			continue
		}
		f, readErr := readFile(dir, name)
		s.shared, err = append(s.shared, f), errors.Join(err, readErr)
	}
	return s, err
}

// inGit reports whether dir is the top of a git repository. It is an error if it looks so and git refuses.
func inGit(ctx context.Context, dir string) (bool, error) {
	up, err := output(ctx, dir, "git", "rev-parse", "--show-cdup")
	if _, there := os.Stat(filepath.Join(dir, ".git")); err != nil && there == nil {
		return false, fmt.Errorf("here is .git, but git does not work; of another user's checkout: "+
			"git config --global --add safe.directory %s: %w", dir, err)
	}
	return err == nil && up == "", nil
}

// sourceNames lists the files of the tree: in git what is committed or added, else all there are.
func sourceNames(ctx context.Context, dir string, git bool) ([]string, error) {
	var names []string
	if git {
		list, err := output(ctx, dir, "git", "ls-files", "-z")
		names = strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
		slices.Sort(names)
		return names, err
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

// isShared reports whether a file is for users: documentation, or an example without its tests.
func isShared(name string) bool {
	switch top, _, _ := strings.Cut(name, "/"); top {
	case "README.md", "CHANGELOG.md":
		return true
	case "docs":
		return filepath.Ext(name) == ".md"
	case "examples":
		return !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "/testdata/") &&
			!strings.Contains(name, "/__pycache__/") && !strings.HasPrefix(name, "examples/checkpoint/images/")
	}
	return false
}

func readFile(dir, name string) (file, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	info, err := os.Stat(path)
	if err != nil {
		return file{}, err
	}
	body, err := os.ReadFile(path)
	return file{name: name, body: body, executable: info.Mode()&0o100 != 0}, err
}

func parseTime(seconds string) (time.Time, error) {
	n, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// output runs a program and returns its standard output without the newline at its end.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// inTemp runs f with a new directory, and removes it.
func inTemp(f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "muster-release-")
	if err != nil {
		return err
	}
	return errors.Join(f(dir), os.RemoveAll(dir))
}
