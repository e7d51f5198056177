package zkconn_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

// limits are the limits of requests and the sizes of the library's send buffers. The library panics if a request ends
// exactly at the end of its buffer.
var limits = map[string]struct {
	small         bool
	limit, buffer int
}{
	"small":  {true, 15 << 10, 16 << 10},
	"normal": {false, 1_000_000, 1<<20 + 4<<10},
}

func TestNoRequestReachesTheEndOfTheBuffer(t *testing.T) {
	for name, c := range limits {
		t.Run(name, func(t *testing.T) {
			ctx, dir := within(t, 20*time.Second), root(t)
			s := dial(t, zkconn.Config{Small: c.small})
			path := must(s.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
			single := c.limit - 8 - 4 - len(path) - 4 - 4   // header, path, data's length, version
			multi := single - 9 - 9 - 9 - 4 - len(path) - 4 // headers, a check
			read := c.limit - 8 - 4 - 1 - len(dir) - 1      // header, length, flag, slash
			for around, want := range map[int]bool{0: true, c.buffer - c.limit: false} {
				for off := around - 20; off <= around+20; off++ {
					fits := want && off <= 0
					data := make([]byte, single+off)
					_, one := s.Set(ctx, path, data, -1)
					_, all := s.Multi(ctx, zkconn.CheckOp(path, -1), zkconn.SetOp(path, data[:multi+off], -1))
					_, _, get := s.Exists(ctx, dir+"/"+strings.Repeat("x", read+off))
					for what, err := range map[string]error{"set": one, "multi": all, "exists": get} {
						if fits == errors.Is(err, zkconn.ErrTooLarge) || fits && err != nil {
							t.Errorf("%s of limit%+d bytes: fits %v, %v", what, off, fits, err)
						}
					}
				}
			}
		})
	}
}

func TestSizeOfATransactionIsExact(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Small: true})
	acl := append([]zkconn.ACL{{Perms: zkconn.PermRead, Scheme: "ip", ID: "10.0.0.0/8"}}, open...)
	var sent int
	p.AfterReply(func(op int32, req []byte) bool {
		if op == zkserver.OpMulti {
			sent = 8 + len(req)
		}
		return false
	})
	ops := func(pad int) []zkconn.Op {
		return []zkconn.Op{
			zkconn.CreateOp(dir+"/a", make([]byte, 1000+pad), zkconn.Persistent, acl),
			zkconn.CheckOp(dir, -1),
			zkconn.SetOp(dir+"/a", make([]byte, 100), 0),
			zkconn.DeleteOp(dir+"/a", 1),
		}
	}
	must(s.Multi(ctx, ops(0)...))(t)
	rest := 15<<10 - sent
	must(s.Multi(ctx, ops(rest)...))(t)
	if _, err := s.Multi(ctx, ops(rest+1)...); !errors.Is(err, zkconn.ErrTooLarge) {
		t.Errorf("one byte beyond the limit: %v", err)
	}
}

func TestTooLargeCallsDoNotAffectOthers(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	writer := dial(t, zkconn.Config{})
	var ops []zkconn.Op
	for i := range 1000 {
		child := fmt.Sprintf("%s/child-with-a-rather-long-name-%d", dir, i)
		ops = append(ops, zkconn.CreateOp(child, nil, zkconn.Persistent, open))
	}
	must(writer.Multi(ctx, ops...))(t)
	mine := must(writer.Create(ctx, dir+"/mine", nil, zkconn.Persistent, open))(t)

	s := dial(t, zkconn.Config{Small: true})
	stop := make(chan struct{})
	var bystanders sync.WaitGroup
	for range 50 {
		bystanders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Set(ctx, mine, []byte("x"), -1); err != nil {
					t.Errorf("bystander: %v", err)
					return
				}
			}
		})
	}
	for range 5 {
		if _, err := s.Set(ctx, mine, bytes.Repeat([]byte("x"), 2<<20), -1); !errors.Is(err, zkconn.ErrTooLarge) {
			t.Errorf("request: %v, want %v", err, zkconn.ErrTooLarge)
		}
		if _, _, err := s.Children(ctx, dir); !errors.Is(err, zkconn.ErrTooLarge) {
			t.Errorf("reply: %v, want %v", err, zkconn.ErrTooLarge)
		}
		if _, _, ch, err := s.ChildrenW(ctx, dir); !errors.Is(err, zkconn.ErrTooLarge) || ch != nil {
			t.Errorf("watched reply: %v, want %v", err, zkconn.ErrTooLarge)
		}
	}
	close(stop)
	bystanders.Wait()
	names, _, err := writer.Children(ctx, dir)
	if len(names) != 1001 || err != nil {
		t.Errorf("%d children: %v", len(names), err)
	}
}

func TestManySmallSessionsTakeFewGoroutines(t *testing.T) {
	ctx, dir := within(t, 30*time.Second), root(t)
	before := runtime.NumGoroutine()
	const n = 200
	sessions := make([]*zkconn.Session, n)
	flags := make([]<-chan struct{}, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			sessions[i] = dial(t, zkconn.Config{Small: true})
			var err error
			if _, _, flags[i], err = sessions[i].ExistsW(ctx, dir+"/flag"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if each := float64(runtime.NumGoroutine()-before) / n; each > 3.5 {
		t.Errorf("%.1f goroutines for each session, want the library's 3", each)
	}
	must(sessions[0].Create(ctx, dir+"/flag", nil, zkconn.Ephemeral, open))(t)
	for _, flag := range flags {
		closes(t, flag, 10*time.Second)
	}
	for _, s := range sessions {
		all.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for range time.Tick(5 * time.Millisecond) {
		now := runtime.NumGoroutine()
		if now <= before+10 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines, %d before", now, before)
		}
	}
}

// TestSmallSessionKeepsItsWatches: they need more room than it has for a request.
func TestSmallSessionKeepsItsWatches(t *testing.T) {
	ctx, dir := within(t, 60*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Small: true}), dial(t, zkconn.Config{})
	var held []<-chan struct{}
	for i := range 300 {
		_, _, ch, err := s.ExistsW(ctx, fmt.Sprintf("%s/%0100d", dir, i))
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		held = append(held, ch)
	}
	p.Cut()
	for i, ch := range held {
		must(other.Create(ctx, fmt.Sprintf("%s/%0100d", dir, i), nil, zkconn.Ephemeral, open))(t)
		closes(t, ch, 10*time.Second)
	}
}
