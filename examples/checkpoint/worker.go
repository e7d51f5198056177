package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"muster/member"
	"muster/zkstate/zkconn"
)

// retry is how long a worker waits before it connects to the leader again. The leader listens only while it has an
// order.
const retry = 50 * time.Millisecond

// worker computes: it counts. It begins suspended, because it cannot know whether a checkpoint is under way; the end
// of the next checkpoint sets it to work.
type worker struct {
	id     int
	images string

	mu      sync.Mutex
	running bool
	count   int
	epoch   int64 // of the newest leader that it knows
}

// work is a worker's whole life. It begins with what is in the last checkpoint that was published.
func work(ctx context.Context, id int, images string) error {
	w := &worker{id: id, images: images}
	last, err := readLast(images, id)
	if err != nil {
		return err
	}
	w.count = last.Count
	go w.compute()
	for {
		if err := w.follow(ctx); !errors.Is(err, zkconn.ErrSessionLost) {
			return err
		}
		log.Printf("worker %d: the session with ZooKeeper is lost; following in another one", id)
	}
}

func (w *worker) compute() {
	for range time.Tick(time.Millisecond) {
		w.mu.Lock()
		if w.running {
			w.count++
		}
		w.mu.Unlock()
	}
}

// follow connects to the leader, whoever it is, until the session with ZooKeeper ends.
func (w *worker) follow(ctx context.Context) error {
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: strings.Split(os.Getenv("MUSTER_SERVERS"), ",")})
	if err != nil {
		return err
	}
	defer s.Close()
	leave := func() {} // the leader
	defer func() { leave() }()
	root := cmp.Or(os.Getenv("ROOT"), "/apps")
	for leader, err := range member.Follow(ctx, s, root, "checkpoint", "coordinator") {
		leave()
		if err != nil {
			return err
		}
		if leader.Address == "" {
			continue // nobody leads at the moment
		}
		log.Printf("worker %d: follows %s, epoch %d", w.id, leader.Identity, leader.Epoch)
		w.mu.Lock()
		w.epoch = max(w.epoch, leader.Epoch)
		w.mu.Unlock()
		leave = w.attend(ctx, leader.Address)
	}
	return nil
}

// attend takes orders from the leader at this address until leave is called.
func (w *worker) attend(ctx context.Context, address string) (leave func()) {
	ctx, leave = context.WithCancel(ctx)
	go w.connect(ctx, address)
	return leave
}

func (w *worker) connect(ctx context.Context, address string) {
	for ctx.Err() == nil {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
			hangUp := context.AfterFunc(ctx, func() { conn.Close() })
			w.take(conn)
			hangUp()
			conn.Close()
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// take takes one order, and waits until the leader hangs up: then all workers have done it.
func (w *worker) take(conn net.Conn) {
	var o order
	if json.NewDecoder(conn).Decode(&o) != nil {
		return
	}
	a := answer{Worker: w.id}
	if err := w.obey(o); err != nil {
		a.Refused = err.Error()
		log.Printf("worker %d: refuses to %s: %v", w.id, o.Do, err)
	}
	if json.NewEncoder(conn).Encode(a) == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// obey does what an order says. Each can be done twice: a new leader repeats the one at which the old leader died.
func (w *worker) obey(o order) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Epoch < w.epoch {
		return fmt.Errorf("it is from epoch %d, and the leader has epoch %d", o.Epoch, w.epoch)
	}
	w.epoch = o.Epoch
	switch o.Do {
	case "suspend":
		w.running = false
	case "write":
		if w.running {
			return errors.New("it was not suspended")
		}
		return write(w.images, image{o.Checkpoint, w.id, w.count})
	case "resume":
		w.running = true
	default:
		return fmt.Errorf("there is no such order: %q", o.Do)
	}
	return nil
}
