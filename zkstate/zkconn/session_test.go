package zkconn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/zkstate/zkconn"
)

func TestReadsSeeWrites(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	a := must(s.Create(ctx, dir+"/a", []byte("one"), zkconn.Persistent, open))(t)
	data, before, err := s.Get(ctx, a)
	if err != nil || string(data) != "one" || before.Version != 0 || before.DataLength != 3 {
		t.Fatalf("get: %q %+v %v", data, before, err)
	}
	after := must(s.Set(ctx, a, []byte("two"), before.Version))(t)
	if after.Version != 1 || after.Czxid != before.Czxid || after.Mzxid <= before.Mzxid {
		t.Errorf("set: before %+v after %+v", before, after)
	}
	must(s.Create(ctx, dir+"/c", nil, zkconn.Ephemeral, open))(t)
	b := must(s.Create(ctx, dir+"/b-", nil, zkconn.EphemeralSequential, open))(t)
	names, stat, err := s.Children(ctx, dir)
	if d := cmp.Diff([]string{"a", b[len(dir)+1:], "c"}, names); d != "" || err != nil || stat.NumChildren != 3 {
		t.Errorf("children %+v %v (-want +got):\n%s", stat, err, d)
	}
	if stat, ok, err := s.Exists(ctx, b); err != nil || !ok || stat.EphemeralOwner != s.ID() {
		t.Errorf("exists: %+v %v %v; session %d", stat, ok, err, s.ID())
	}
	if _, ok, err := s.Exists(ctx, dir+"/nothing"); ok || err != nil {
		t.Errorf("exists of nothing: %v %v", ok, err)
	}
	acl, _, err := s.ACL(ctx, a)
	if d := cmp.Diff(open, acl); d != "" || err != nil {
		t.Errorf("acl %v (-want +got):\n%s", err, d)
	}
	if err := s.Delete(ctx, a, 1); err != nil {
		t.Error(err)
	}
}

func TestErrorsNameOperationPathAndReason(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	must(s.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
	must(s.Create(ctx, dir+"/a/b", nil, zkconn.Ephemeral, open))(t)
	_, _, missing := s.Get(ctx, dir+"/x")
	_, exists := s.Create(ctx, dir+"/a", nil, zkconn.Persistent, open)
	_, moved := s.Set(ctx, dir+"/a", nil, 7)
	full := s.Delete(ctx, dir+"/a", 0)
	_, acl := s.Create(ctx, dir+"/c", nil, zkconn.Persistent, []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}})
	_, parent := s.Create(ctx, dir+"/a/b/c", nil, zkconn.Persistent, open)
	_, _, invalid := s.Get(ctx, "no/slash")
	for _, c := range []struct {
		err  error
		is   error
		text string
	}{
		{missing, zkconn.ErrNoNode, "get " + dir + "/x: no such znode"},
		{exists, zkconn.ErrNodeExists, "create " + dir + "/a: znode exists already"},
		{moved, zkconn.ErrBadVersion, "set " + dir + "/a: znode has changed"},
		{full, zkconn.ErrNotEmpty, "delete " + dir + "/a: znode has children"},
		{acl, zkconn.ErrInvalidACL, "create " + dir + "/c: invalid ACL"},
		{parent, nil, "create " + dir + "/a/b/c: an ephemeral znode cannot have children"},
		{invalid, nil, "get no/slash: invalid path"},
	} {
		var e *zkconn.Error
		if c.err == nil || !errors.As(c.err, &e) || c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%v: want *Error with %v", c.err, c.is)
			continue
		}
		if d := cmp.Diff(c.text, c.err.Error()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestNilAndEmptyDataAreTheSame(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	for name, data := range map[string][]byte{"nil": nil, "empty": {}} {
		path := must(s.Create(ctx, dir+"/"+name, data, zkconn.Persistent, open))(t)
		got, stat, err := s.Get(ctx, path)
		if err != nil || got != nil || stat.DataLength != 0 {
			t.Errorf("%s: %#v %+v %v", name, got, stat, err)
		}
		if _, err := s.Multi(ctx, zkconn.SetOp(path, data, 0)); err != nil {
			t.Error(err)
		}
		if got, _, err := s.Get(ctx, path); err != nil || got != nil {
			t.Errorf("%s after a transaction: %#v %v", name, got, err)
		}
	}
}

func TestTransactionErrorNamesTheOperation(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s := dial(t, zkconn.Config{})
	results := must(s.Multi(ctx,
		zkconn.CreateOp(dir+"/a", []byte("1"), zkconn.Persistent, open),
		zkconn.CreateOp(dir+"/n-", nil, zkconn.PersistentSequential, open),
		zkconn.SetOp(dir+"/a", []byte("2"), 0),
		zkconn.CheckOp(dir+"/a", 1),
		zkconn.DeleteOp(dir+"/a", 1)))(t)
	if len(results) != 5 || results[0].Path != dir+"/a" || results[1].Path != dir+"/n-0000000001" ||
		results[2].Stat.Version != 1 {
		t.Errorf("results: %+v", results)
	}
	_, err := s.Multi(ctx,
		zkconn.CreateOp(dir+"/b", nil, zkconn.Persistent, open),
		zkconn.DeleteOp(dir+"/gone", 0),
		zkconn.CheckOp(dir+"/b", 9))
	if d := cmp.Diff("delete "+dir+"/gone: no such znode", err.Error()); d != "" || !errors.Is(err, zkconn.ErrNoNode) {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, ok, err := s.Exists(ctx, dir+"/b"); ok || err != nil {
		t.Errorf("the refused transaction created a znode: %v", err)
	}
	_, err = s.Multi(ctx, zkconn.CreateOp("bad", nil, zkconn.Persistent, open))
	if err == nil || errors.Is(err, zkconn.ErrUnknown) {
		t.Errorf("invalid path: %v", err)
	}
	if r, err := s.Multi(ctx); r != nil || err != nil {
		t.Errorf("empty: %v %v", r, err)
	}
}

func TestWatchClosesAtAnyEvent(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	s, other := dial(t, zkconn.Config{}), dial(t, zkconn.Config{})
	_, _, created, err := s.ExistsW(ctx, dir+"/a")
	if err != nil {
		t.Fatal(err)
	}
	_, _, child, err := s.ChildrenW(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	must(other.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
	closes(t, created, 5*time.Second)
	closes(t, child, 5*time.Second)
	_, _, changed, err := s.GetW(ctx, dir+"/a")
	if err != nil {
		t.Fatal(err)
	}
	_, _, both, err := s.ExistsW(ctx, dir+"/a")
	if err != nil {
		t.Fatal(err)
	}
	must(other.Set(ctx, dir+"/a", []byte("x"), 0))(t)
	closes(t, changed, 5*time.Second)
	closes(t, both, 5*time.Second)
	_, _, last, err := s.ChildrenW(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	closes(t, last, time.Second)
	if _, _, ch, err := s.GetW(ctx, dir); !errors.Is(err, zkconn.ErrSessionLost) || ch != nil {
		t.Errorf("after close: %v", err)
	}
}

// TestCreatedW: created returns true only for an event on the connection on which the watch was set.
func TestCreatedW(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}}), dial(t, zkconn.Config{})
	watch := func(name string) (<-chan struct{}, func() bool) {
		_, exists, changed, created, err := s.CreatedW(ctx, dir+"/"+name)
		if err != nil || exists {
			t.Fatal(exists, err)
		}
		return changed, created
	}
	changed, created := watch("a")
	must(other.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
	closes(t, changed, 5*time.Second)
	if !created() {
		t.Error("a creation was not seen")
	}
	if _, exists, _, _, err := s.CreatedW(ctx, dir+"/a"); err != nil || !exists {
		t.Errorf("a: %v, %v", exists, err)
	}
	changed, created = watch("b")
	p.Cut()
	if err := s.Sync(ctx, dir); err != nil {
		t.Fatal(err)
	}
	must(other.Create(ctx, dir+"/b", nil, zkconn.Persistent, open))(t)
	closes(t, changed, 5*time.Second)
	if created() {
		t.Error("an event of another connection counts as a creation")
	}
	changed, created = watch("c")
	s.Close()
	closes(t, changed, 5*time.Second)
	if created() {
		t.Error("the end of the session counts as a creation")
	}
}

// TestWhoGivesUpLeavesNoChannel: who reads with the same watch again and again gets the same channel until its event.
func TestWhoGivesUpLeavesNoChannel(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	s, other := dial(t, zkconn.Config{}), dial(t, zkconn.Config{})
	for round := range 2 {
		var set []<-chan struct{}
		child := fmt.Sprint(dir, "/", round)
		for name, watch := range map[string]func() (<-chan struct{}, error){
			"data":     func() (<-chan struct{}, error) { _, _, changed, err := s.GetW(ctx, dir); return changed, err },
			"children": func() (<-chan struct{}, error) { _, _, changed, err := s.ChildrenW(ctx, dir); return changed, err },
			"creation": func() (<-chan struct{}, error) { _, _, changed, err := s.ExistsW(ctx, child); return changed, err },
		} {
			first := must(watch())(t)
			for range 5 {
				if must(watch())(t) != first {
					t.Errorf("round %d, %s: another channel", round, name)
				}
			}
			set = append(set, first)
		}
		must(other.Create(ctx, child, nil, zkconn.Persistent, open))(t)
		must(other.Set(ctx, dir, nil, -1))(t)
		for _, changed := range set { // or else the next round may begin before the events have come
			closes(t, changed, 5*time.Second)
		}
	}
}

// TestWatchWhoseEventMayNotBeTold: a server tells nobody of a change who may not read the znode, and forgets the watch.
// Who reads again watches again.
func TestWatchWhoseEventMayNotBeTold(t *testing.T) {
	ctx, path := within(t, 30*time.Second), root(t)+"/secret"
	s, other := dial(t, zkconn.Config{}), dial(t, zkconn.Config{})
	watch := func() <-chan struct{} {
		t.Helper()
		_, there, changed, err := s.ExistsW(ctx, path)
		if err != nil || there {
			t.Fatal(there, err)
		}
		return changed
	}
	watch()
	must(other.Create(ctx, path, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll&^zkconn.PermRead)))(t)
	if err := other.Delete(ctx, path, -1); err != nil {
		t.Fatal(err)
	}
	changed := watch()
	must(other.Create(ctx, path, nil, zkconn.Persistent, open))(t)
	closes(t, changed, 10*time.Second)
}

// forged changes one field of the answer to a handshake.
type forged func(frame []byte)

func granting(ms int32) forged {
	return func(frame []byte) { binary.BigEndian.PutUint32(frame[8:], uint32(ms)) }
}

// unfit are answers to a handshake that no ZooKeeper server gives.
func unfit() map[string]forged {
	return map[string]forged{
		"no timeout":         granting(0),
		"a negative timeout": granting(-4000),
		"an absurd timeout":  granting(1 << 30),
		"a short password":   func(frame []byte) { binary.BigEndian.PutUint32(frame[20:], 8) },
		"a long password":    func(frame []byte) { binary.BigEndian.PutUint32(frame[20:], 1<<30) },
		"no password":        func(frame []byte) { binary.BigEndian.PutUint32(frame[20:], 1<<32-1) },
	}
}

// TestAnotherSessionIsALostOne: a server answers a reconnection with a session that is not ours. Our ephemeral znodes
// are not there, so the session has ended, and no call is sent in the other.
func TestAnotherSessionIsALostOne(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]forged{
		"another id":       func(frame []byte) { frame[19]++ },
		"another password": func(frame []byte) { frame[39]++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, shared.Connect())
			p := proxy(t, r.Addr().String())
			s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: time.Minute})
			id := s.ID()
			r.set(func(r *relay) { r.forge = forge })
			p.Cut()
			closes(t, s.Context().Done(), 30*time.Second)
			err := context.Cause(s.Context())
			if !errors.Is(err, zkconn.ErrSessionLost) || !strings.Contains(err.Error(), "another session") {
				t.Error(err)
			}
			if _, _, err := s.Get(t.Context(), "/"); !errors.Is(err, zkconn.ErrSessionLost) {
				t.Error(err)
			}
			if s.ID() != id {
				t.Errorf("the session %#x became %#x", id, s.ID())
			}
		})
	}
}

// TestUnfitHandshake: what a server cannot have meant is a failure of this server. Dial says so, and a session that
// reconnects tries again.
func TestUnfitHandshake(t *testing.T) {
	t.Parallel()
	for name, forge := range unfit() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, shared.Connect())
			p := proxy(t, r.Addr().String())
			c := zkconn.Config{Servers: []string{p.Addr()}, Timeout: time.Minute}
			s := dial(t, c)
			r.set(func(r *relay) { r.forge = forge })
			_, err := zkconn.Dial(within(t, 2*time.Second), c)
			if !errors.Is(err, zkconn.ErrUnreachable) || !strings.Contains(err.Error(), "not like a ZooKeeper server") {
				t.Error(err)
			}
			refused := make(chan struct{})
			once := false
			r.set(func(r *relay) {
				r.forge = func(frame []byte) {
					if !once {
						forge(frame)
						once = true
						close(refused)
					}
				}
			})
			p.Cut()
			closes(t, refused, 30*time.Second)
			if err := s.Sync(within(t, 30*time.Second), "/"); err != nil {
				t.Error(err)
			}
			if s.Timeout() != time.Minute {
				t.Errorf("timeout %s", s.Timeout())
			}
		})
	}
}

// TestFirstReplyMeetsNoWatches: when the library has connected again, it reads the zxid of the last reply if it knows
// of watches, while it may receive the first reply. That is a race within it. It knows of none: conn sets them. Here a
// reply comes together with the answer to the handshake, and the race detector would tell.
func TestFirstReplyMeetsNoWatches(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, 30*time.Second), root(t)
	r := newRelay(t, shared.Connect())
	p := proxy(t, r.Addr().String())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}}), dial(t, zkconn.Config{})
	_, _, changed, err := s.GetW(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	reply := binary.BigEndian.AppendUint32(nil, 16)
	reply = binary.BigEndian.AppendUint32(reply, 1<<31-1) // to a request that nobody sent
	reply = binary.BigEndian.AppendUint64(reply, 1)       // the zxid
	reply = binary.BigEndian.AppendUint32(reply, 0)
	r.set(func(r *relay) { r.added = reply })
	for range 10 {
		p.Cut()
		if _, _, err := s.Get(ctx, dir); err != nil {
			t.Fatal(err)
		}
	}
	must(other.Set(ctx, dir, nil, 0))(t)
	closes(t, changed, 10*time.Second)
}

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
		if op == fault.OpMulti {
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
