package wrap

import (
	"sync"
	"syscall"
)

// reaper waits for all children of process 1: its commands, and the orphans that the kernel gives to it. One loop waits
// for all, because two would take each other's statuses.
type reaper struct {
	// starting is read-locked from before a command is started until its exit has a receiver: a child that the reaper
	// does not know is an orphan.
	starting sync.RWMutex
	mu       sync.Mutex
	exits    map[int]chan<- exitStatus // by process
	running  bool                      // the loop
}

func newReaper() *reaper { return &reaper{exits: map[int]chan<- exitStatus{}} }

// run starts the process of c, says on started whether that succeeded, and returns when the process has ended.
func (r *reaper) run(c *command, begin func() error, started chan<- error, end chan<- exitStatus) {
	exit := make(chan exitStatus, 1)
	err := r.begin(c, begin, exit)
	started <- err
	if err == nil {
		end <- <-exit
	}
}

func (r *reaper) begin(c *command, begin func() error, exit chan<- exitStatus) error {
	r.starting.RLock()
	defer r.starting.RUnlock()
	if err := begin(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exits[c.process.Pid] = exit
	if !r.running {
		r.running = true
		go r.reap()
	}
	return nil
}

// reap returns when there are no children.
func (r *reaper) reap() {
	for over := false; !over; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		over = r.reaped(pid, status, err)
	}
}

// reaped passes a status on. It reports whether there are no children.
func (r *reaper) reaped(pid int, status syscall.WaitStatus, err error) (over bool) {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // a command may have been started since
		if pid, err = syscall.Wait4(-1, &status, syscall.WNOHANG, nil); err == nil && pid == 0 {
			return false
		}
	}
	if err != nil {
		for _, end := range r.exits {
			end <- exitStatus{err: err}
		}
		clear(r.exits)
		r.running = false
		return true
	}
	if end, ok := r.exits[pid]; ok {
		delete(r.exits, pid)
		end <- exitStatus{status: status}
	}
	return false
}
