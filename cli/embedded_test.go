package cli_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"muster/dev/zkserver"
)

// embedded runs the scripts without servers: go test ./cli -embedded -run TestScripts. They run on a real one too.
var embedded = flag.Bool("embedded", false, "run TestScripts, and nothing else, on muster dev --embedded")

// scriptServer is the address of the ZooKeeper of the scripts.
var scriptServer string

// startServers starts what the tests run on.
func startServers() (stop func() error, err error) {
	if !*embedded {
		if servers, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
			return nil, err
		}
		scriptServer = servers.Connect()
		return servers.Stop, nil
	}
	if run := flag.Lookup("test.run").Value.String(); !strings.HasPrefix(run, "TestScripts") {
		return nil, fmt.Errorf("with -embedded there is only -run TestScripts, not -run %q", run)
	}
	cmd := exec.Command(filepath.Join(bin, "muster"), "dev", "--embedded", "--quiet")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	stop = func() error {
		err := cmd.Process.Signal(syscall.SIGTERM)
		var exit *exec.ExitError
		if ended := cmd.Wait(); !errors.As(ended, &exit) || exit.ExitCode() != 143 {
			return errors.Join(err, fmt.Errorf("muster dev --embedded: %w", ended))
		}
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	scriptServer = strings.TrimPrefix(strings.TrimSpace(line), "export MUSTER_SERVERS=")
	return stop, nil
}
