package zkserver

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"muster/dev/daemon"
)

// TestPortOfAKilledServerIsKept: no other program gets the port before the restart.
func TestPortOfAKilledServerIsKept(t *testing.T) {
	port := freePort(t)
	e := start(t, Options{Ports: []int{port}})
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
