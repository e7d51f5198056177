package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
)

// ErrNotInstalled means that this machine lacks Redis, or has one that is too old. Show the error to the user: it names
// the command that installs it.
var ErrNotInstalled = errors.New("not installed")

// oldest is the major version that a queue needs.
const oldest = 7

// version is what redis-server --version prints, such as "Redis server v=7.0.15 sha=…".
var version = regexp.MustCompile(`\bv=((\d+)\.\S+)`)

// locate is the path of a program of Redis, which Debian has in a package of the same name.
func locate(ctx context.Context, program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", missing(program, err.Error())
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	found := version.FindStringSubmatch(string(out))
	if found == nil {
		return "", missing(program, fmt.Sprintf("%s says its version is %.80q", path, out))
	}
	if major, err := strconv.Atoi(found[2]); err != nil || major < oldest {
		return "", missing(program, fmt.Sprintf("%s is version %s", path, found[1]))
	}
	return path, nil
}

// missing is ErrNotInstalled, with the command that installs the program.
func missing(program, why string) error {
	remedy := "install Redis 7 or newer"
	if _, err := os.Stat("/etc/debian_version"); err == nil {
		remedy = "run: apt-get install -y " + program
	} else if runtime.GOOS == "darwin" {
		remedy = "run: brew install redis"
	}
	return fmt.Errorf("%s 7 or newer is %w (%s); %s", program, ErrNotInstalled, why, remedy)
}
