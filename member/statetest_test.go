package member_test

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"muster/member"
	"muster/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// joinBy joins in a session of its own, through a proxy. The session ends soon after the proxy is cut.
func (f *fixture) joinBy(p *zkserver.Proxy, timeout time.Duration, identity string, can ...string) *member.Member {
	f.t.Helper()
	s, err := zkconn.Dial(f.t.Context(), zkconn.Config{Servers: []string{p.Addr()}, Timeout: timeout})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	m, err := member.Join(f.t.Context(), s, f.config(identity, "1.0", can...))
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// writesBelow accepts the nth transaction, from 1, that writes a znode whose path holds part.
func writesBelow(part string, n int32) func(int32, []byte) bool {
	var seen atomic.Int32
	return func(op int32, req []byte) bool {
		return op == zkserver.OpMulti && bytes.Contains(req, []byte(part)) && seen.Add(1) == n
	}
}

func happened(fired <-chan struct{}) bool {
	select {
	case <-fired:
		return true
	default:
		return false
	}
}

// value is one whose every part tells which value it is: a mix of two is found.
func value(n, size int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%07d\n", n), size/8+1)[:size]
}

// checkState compares everything that is saved for a duty with want, and looks for znodes that should not be there.
func (f *fixture) checkState(g, duty string, want map[string][]byte) {
	f.t.Helper()
	root, folder := f.group.Root, znode.States(f.group.Root, g, duty)
	total := 0
	names := f.namesBelow(folder)
	for _, key := range names {
		got, err := member.ReadState(f.t.Context(), f.s, root, g, duty, key)
		if err != nil {
			f.t.Errorf("%s: %v", key, err)
		} else if !bytes.Equal(got, want[key]) {
			f.t.Errorf("%s has %d bytes, want %d", key, len(got), len(want[key]))
		}
		total += len(want[key])
	}
	if len(names) != len(want) {
		f.t.Errorf("the keys are %q, want %d", names, len(want))
	}
	body, _, err := f.s.Get(f.t.Context(), folder)
	if err != nil {
		f.t.Fatal(err)
	}
	if is := znode.DecodeStateTotal(body).Bytes; is != int64(total) {
		f.t.Errorf("the total is %d, want %d", is, total)
	}
}

// namesBelow are the children of a path.
func (f *fixture) namesBelow(at string) []string {
	f.t.Helper()
	if err := f.s.Sync(f.t.Context(), at); err != nil {
		f.t.Fatal(err)
	}
	names, _, err := f.s.Children(f.t.Context(), at)
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

// dump lists every znode below at with the transaction that wrote it last.
func (f *fixture) dump(at string) []string {
	stat, there, err := f.s.Exists(f.t.Context(), at)
	if err != nil {
		f.t.Error(err)
	}
	if !there {
		return nil
	}
	all := []string{fmt.Sprint(at, " ", stat.Mzxid, " ", stat.Pzxid)}
	names, _, err := f.s.Children(f.t.Context(), at)
	if err != nil {
		f.t.Error(err)
	}
	for _, name := range names {
		all = append(all, f.dump(path.Join(at, name))...)
	}
	slices.Sort(all)
	return all
}
