package watches

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/zkstate"
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

// reader is a process that waits for events in several ways at once. Each way believes something of some aspects.
type reader struct {
	book    *book
	process *sim.Process
	session *zkconn.Session
	mirror  *zkstate.Mirror

	mu      sync.Mutex
	seen    int64 // the newest transaction of which an answer has told
	beliefs map[belief]string
	err     error
	news    chan struct{} // holds an element after a change of the above
}

type belief struct {
	way string
	of  aspect
}

// way waits for events until its context ends, or reading fails.
type way func(ctx context.Context, r *reader) error

// read declares a process that ends when nothing changes any more and all that it believes is true.
func (b *book) read(w *sim.World, name string, hooks wire, ways ...way) {
	w.Process(name, 0, func(p *sim.Process) error {
		config := p.Config(timeout)
		config.Dial = hooks.dial(config.Dial)
		s, err := zkconn.Dial(p.Context(), config)
		if err != nil {
			return err
		}
		p.Owns(s)
		defer s.Close()
		r := &reader{
			book: b, process: p, session: s, mirror: zkstate.NewMirror(s), beliefs: map[belief]string{},
			news: make(chan struct{}, 1),
		}
		return r.run(p.Context(), ways)
	})
}

func (r *reader) run(ctx context.Context, ways []way) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, one := range ways {
		running.Go(func() {
			if err := one(ctx, r); err != nil && ctx.Err() == nil {
				r.mu.Lock()
				r.err = err
				r.mu.Unlock()
				r.tell()
			}
		})
	}
	for quiet := r.book.quiet; ; {
		select {
		case <-quiet:
			quiet = nil
		case <-r.news:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.session.Context().Done():
			return context.Cause(r.session.Context())
		}
		if done, err := r.done(len(ways)); err != nil || done && quiet == nil {
			return err
		}
	}
}

// done reports whether everything that is believed is true, after each way has read everything.
func (r *reader) done(ways int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b, text := range r.beliefs {
		if text != r.book.now(b.of) {
			return false, r.err
		}
	}
	by := map[string]bool{}
	for b := range r.beliefs {
		by[b.way] = true
	}
	return len(by) == ways, r.err
}

func (r *reader) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// believes notes what a way has read.
func (r *reader) believes(way, path, kind, text string) {
	r.mu.Lock()
	r.beliefs[belief{way, aspect{path, kind}}] = text
	r.mu.Unlock()
	r.tell()
}

// answered notes what an answer tells, and complains if the session knew of something newer before it asked.
func (r *reader) answered(path, kind, text string, s zkconn.Stat, knew int64) {
	if err := r.book.notBefore(aspect{path, kind}, text, knew); err != nil {
		r.process.Fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = max(r.seen, s.Mzxid, s.Pzxid)
}

func (r *reader) knows() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// ask reads an aspect of a znode through a Look, or without one, and checks the answer.
func (r *reader) ask(ctx context.Context, from zkstate.Source, path, kind string) (text string, err error) {
	knew, there := r.knows(), true
	var data []byte
	var children []string
	var stat zkconn.Stat
	switch kind {
	case "data":
		data, stat, err = from.Get(ctx, path)
	case "children":
		children, stat, err = from.Children(ctx, path)
	default:
		stat, there, err = from.Exists(ctx, path)
	}
	if errors.Is(err, zkconn.ErrNoNode) {
		there, err = false, nil
	}
	if err != nil {
		return "", err
	}
	text = textOf(kind, there, data, children, stat)
	r.answered(path, kind, text, stat, knew)
	return text, nil
}

// looks reads all znodes through one Look after the other. After each answer it asks for something else without a
// Look, which may tell of newer transactions.
func looks(kinds ...string) way {
	return func(ctx context.Context, r *reader) error {
		look := r.mirror.Look()
		defer func() { look.Close() }()
		for {
			for i, path := range paths {
				for _, kind := range kinds {
					text, err := r.ask(ctx, look, path, kind)
					if err == nil {
						_, err = r.ask(ctx, r.session, paths[(i+1)%len(paths)], "stat")
					}
					if err != nil {
						return err
					}
					r.believes(fmt.Sprint("look ", kinds), path, kind, text)
				}
			}
			if err := await(ctx, look.Changed()); err != nil {
				return nil
			}
			next := r.mirror.Look()
			look.Close()
			look = next
		}
	}
}

// watches waits with the channel of a kind of read.
func watches(path, kind string) way {
	return func(ctx context.Context, r *reader) error {
		for {
			knew, there := r.knows(), true
			var data []byte
			var children []string
			var stat zkconn.Stat
			var changed <-chan struct{}
			var err error
			created := func() bool { return false }
			switch kind {
			case "data":
				data, stat, changed, err = r.session.GetW(ctx, path)
			case "children":
				children, stat, changed, err = r.session.ChildrenW(ctx, path)
			}
			if kind == "exists" || errors.Is(err, zkconn.ErrNoNode) {
				stat, there, changed, created, err = r.session.CreatedW(ctx, path)
				if kind != "exists" && there {
					continue
				}
			}
			if err != nil {
				return err
			}
			text := textOf(kind, there, data, children, stat)
			r.answered(path, kind, text, stat, knew)
			r.believes("watch "+path+" "+kind, path, kind, text)
			if await(ctx, changed) != nil {
				return nil
			}
			if created() && r.book.created(path) == 0 {
				r.process.Fail(fmt.Errorf("%s was never created", path))
			}
		}
	}
}

// follows waits as Follow does.
func follows(path string) way {
	return func(ctx context.Context, r *reader) error {
		return r.session.Follow(ctx, path, func(body []byte, s zkconn.Stat, there bool) error {
			r.believes("follow "+path, path, "data", textOf("data", there, body, nil, s))
			return nil
		})
	}
}

func await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
