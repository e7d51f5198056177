package zkconn

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

// TestCreatedWhileWatchesAreSetAgain: an event that a server sends because watches are set again comes before events of
// older transactions. So created does not count, also for who waits since the new connection began.
func TestCreatedWhileWatchesAreSetAgain(t *testing.T) {
	var w watches
	w.init()
	w.connected()
	w.answered(request{xid: 1, op: opExists, watch: "/a"}, 1, codeNoNode)
	if n := len(w.connected()); n != 1 {
		t.Fatalf("%d requests to set watches again", n)
	}
	created := func() bool {
		one := w.add(watchKey{"/a", onExistence})
		w.fire(zk.Event{Type: zk.EventNodeCreated, Path: "/a"})
		<-one.ch
		return one.event == zk.EventNodeCreated
	}
	if created() {
		t.Error("created, before the watches are set again")
	}
	w.answered(request{xid: xidReset, op: opSetWatches}, 1, 0)
	if !created() {
		t.Error("not created, after the watches are set again")
	}
}
