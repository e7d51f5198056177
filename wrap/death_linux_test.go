package wrap

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestTheCommandDiesWithItsWorker: the process that a worker started ends if the worker is killed. What that process
// started itself does not.
func TestTheCommandDiesWithItsWorker(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), initVariable+"=echo $$; exec sleep 1000")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	await(t, "the command dies", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// TestTheCommandOutlivesThreads: the kernel's parent is a thread, and those come and go.
func TestTheCommandOutlivesThreads(t *testing.T) {
	w := newTestCommand(t, "obeys:5")
	var all sync.WaitGroup
	started := make(chan *command)
	all.Go(func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		c, err := start(w.launch)
		if err != nil {
			t.Error(err)
		}
		started <- c
	})
	c := <-started
	for range 50 {
		all.Go(runtime.LockOSThread)
	}
	all.Wait()
	w.says("ready")
	s := supervisor{command: c, grace: long}
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if e := s.run(t.Context(), signals); e.code() != 5 {
		t.Errorf("%s", e.String())
	}
}
