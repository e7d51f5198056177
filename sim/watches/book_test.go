package watches

import (
	"fmt"
	"strings"
	"sync"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/zkstate/zkconn"
)

// aspect is what can be known of a znode.
type aspect struct {
	path string
	kind string // "data", "children", "exists" or, with its children, "stat"
}

// none is the value of every aspect of a znode that does not exist.
const none = "none"

// book knows which values each aspect has had. A value names the transaction that it is from, so it comes once, unless
// it is none.
type book struct {
	server *zkmodel.Server

	mu     sync.Mutex
	zxid   int64
	values map[aspect][]value // the oldest first
	made   map[string]int     // how often a znode was created
	left   int                // changes that are still to be made
	quiet  chan struct{}      // closed when nobody changes anything any more
}

type value struct {
	since int64
	text  string
}

// paths are the znodes that change. The second may be ephemeral.
var paths = []string{"/w/a", "/w/b", "/w/a/c"}

func newBook(w *sim.World, changes int) *book {
	b := &book{
		server: w.Server(), values: map[aspect][]value{}, made: map[string]int{}, left: changes,
		quiet: make(chan struct{}),
	}
	w.OnTxn(func(t *zkmodel.Txn) error {
		b.note(t)
		return nil
	})
	return b
}

// note notes what a transaction has left.
func (b *book) note(t *zkmodel.Txn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.zxid = t.Zxid
	for _, op := range t.Ops {
		if t.Err == zkmodel.OK && (op.Type == zkmodel.OpCreate || op.Type == zkmodel.OpCreate2) {
			b.made[op.Path]++
		}
	}
	for _, path := range paths {
		data, s, there := b.server.Get(path)
		children := b.server.Children(path)
		stat := zkconn.Stat{Mzxid: s.Mzxid, Pzxid: s.Pzxid}
		for _, kind := range []string{"data", "children", "exists", "stat"} {
			at, text := aspect{path, kind}, textOf(kind, there, data, children, stat)
			if all := b.values[at]; len(all) == 0 || all[len(all)-1].text != text {
				b.values[at] = append(all, value{t.Zxid, text})
			}
		}
	}
}

// textOf is the value of an aspect.
func textOf(kind string, there bool, data []byte, children []string, s zkconn.Stat) string {
	switch {
	case !there:
		return none
	case kind == "data":
		return fmt.Sprintf("%q of %#x", data, s.Mzxid)
	case kind == "children":
		return fmt.Sprintf("%s of %#x", strings.Join(children, ","), s.Pzxid)
	case kind == "exists":
		return fmt.Sprintf("of %#x", s.Mzxid)
	}
	return fmt.Sprintf("of %#x, children of %#x", s.Mzxid, s.Pzxid)
}

// now is the value that an aspect has.
func (b *book) now(at aspect) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all := b.values[at]; len(all) > 0 {
		return all[len(all)-1].text
	}
	return none
}

// notBefore complains if an aspect no longer had this value after the transaction since.
func (b *book) notBefore(at aspect, text string, since int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.values[at]
	for i := len(all) - 1; i >= 0; i-- {
		switch {
		case all[i].text != text:
		case i == len(all)-1 || all[i+1].since > since:
			return nil
		default:
			return fmt.Errorf("the %s of %s: %s, but transaction %#x, of which the session knew, is after %#x: %s",
				at.kind, at.path, text, since, all[i+1].since, all[i+1].text)
		}
	}
	if text == none {
		return nil // before the first transaction
	}
	return fmt.Errorf("the %s of %s never was %s", at.kind, at.path, text)
}

// take takes one of the changes that are left, and returns the newest transaction.
func (b *book) take() (zxid int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
	return b.zxid, b.left >= 0
}

// created is how often a znode was created.
func (b *book) created(path string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made[path]
}
