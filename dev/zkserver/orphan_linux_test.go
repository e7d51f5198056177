package zkserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
)

const parentDir = "ZKSERVER_TEST_PARENT_DIR"

// TestMain is also the parent process that TestServersDieWithTheirParent kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDir); dir != "" {
		e, err := Start(context.Background(), Options{Dir: dir})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(e.Server(0).Run().OS.Pid)
		select {}
	}
	os.Exit(m.Run())
}

func TestServersDieWithTheirParent(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentDir+"="+dir)
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	defer parent.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !runs(t, strings.TrimSpace(line)) {
		t.Fatalf("server %q of the parent: %v", line, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if runs(t, strings.TrimSpace(line)) {
			return fmt.Errorf("server %s runs", line)
		}
		return nil
	})
}

// TestProcessOutlivesTheCallersThread: the system sends the death signal when a thread ends; the thread that calls
// Launch ends before the process.
func TestProcessOutlivesTheCallersThread(t *testing.T) {
	dir := t.TempDir()
	var p *daemon.Process
	var err error
	thread := make(chan int)
	var inThread func()
	inThread = func() {
		runtime.LockOSThread() // without unlocking, so the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			go inThread() // in another thread, since the main thread would not end; it is kept here meanwhile
			<-t.Context().Done()
			runtime.UnlockOSThread()
			return
		}
		p, err = daemon.Launch(dir, "sleep", "600")
		thread <- syscall.Gettid()
	}
	go inThread()
	task := filepath.Join("/proc/self/task", strconv.Itoa(<-thread))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	eventually(t, func() error {
		if _, err := os.Stat(task); err == nil {
			return fmt.Errorf("%s exists", task)
		}
		return nil
	})
	select {
	case <-p.Done:
		t.Errorf("ended with the thread: %v", p.Err)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestStopLeavesNoProcess(t *testing.T) {
	e := start(t, Options{Servers: 3})
	var pids []string
	for i := range 3 {
		pids = append(pids, fmt.Sprint(e.Server(i).Run().OS.Pid))
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if _, err := os.Stat(filepath.Join("/proc", pid)); err == nil {
			t.Errorf("process %s is left", pid)
		}
	}
}

// runs reports whether a process runs. It does not if it is a zombie.
func runs(t *testing.T, pid string) bool {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// TestPortOfAKilledServerIsKept: no other program gets the port before the restart.
func TestPortOfAKilledServerIsKept(t *testing.T) {
	port := freePort(t)
	e := start(t, Options{Port: port})
	if err := e.Server(0).Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.Reserve(port, true); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("reserved twice: %v", err)
	}
	if _, err := net.Dial("tcp", e.Connect()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	if err := e.Server(0).Restart(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}
