package redisserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// ErrNotInstalled means that this machine lacks Redis. Show the error to the user: it names the command that installs
// it.
var ErrNotInstalled = errors.New("not installed")

// locate is the path of a program of Redis, which Debian has in a package of the same name.
func locate(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	remedy := "install Redis 7 or newer"
	if _, err := os.Stat("/etc/debian_version"); err == nil {
		remedy = "run: apt-get install -y " + program
	} else if runtime.GOOS == "darwin" {
		remedy = "run: brew install redis"
	}
	return "", fmt.Errorf("%s is %w (%w); %s", program, ErrNotInstalled, err, remedy)
}
