// Package reconcile keeps ZooKeeper as files declare it: it makes a plan again and again, and applies the part of it
// that is allowed. It decides when, and which rows. What a row does, and whether it is safe, plan and apply decide.
//
// Of several reconcilers of a stack one acts: the first in a queue (election.Queue). Its place in that, the apply lock
// and all that it writes are of one session: so nothing is executed that was sent by one that does not act any more.
//
// People win. What they have paused or terminated, and what they have applied from another configuration, is left as it
// is: see znode.Reconcile.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"muster/plan"
	"muster/zkstate"
	"muster/zkstate/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Config says what to reconcile, and how.
type Config struct {
	Stack, Home string
	Kinds       []zkstate.Kind
	Rules
	Poll  time.Duration // how often the files are read
	Every time.Duration // how often all is read from scratch, and tidied
	// Patience is for how long one that comes to act, and has other files than were taken last, waits for new ones.
	Patience time.Duration

	// Load reads the files. ErrElsewhere ends the reconciler.
	Load func() (*Configuration, error)
	// Connect opens a session, or fails with zkconn.ErrUnreachable: then it is called again. Open makes a Store of it.
	Connect func(ctx context.Context) (*zkconn.Session, error)
	Open    func(s *zkconn.Session) (*zkstate.Store, error)

	Applying func(plan.Plan) // is called before changes are made; may be nil
	Events   func(Event)     // may be nil
	Log      *slog.Logger
}

// Configuration is what files declare.
type Configuration struct {
	Want   plan.Want
	Roots  []string
	Digest string
	Commit string // for the history; may be empty

	Judge    Judge  // nil: there are no policies
	Policies string // digest of their files
}

// ErrElsewhere means that the files name other servers, or another stack or home, than when the process began. Start it
// again.
var ErrElsewhere = errors.New("the files are of another stack")

const (
	passEvery   = time.Second
	lockTimeout = 30 * time.Second
	lastRedial  = 30 * time.Second
)

// Reconciler is one process.
type Reconciler struct {
	cfg Config

	mu      sync.Mutex
	now     Status
	files   *settled      // nil: none has been loaded
	changed chan struct{} // closed when files changes

	took     string            // digest of the files that this one took last
	told     map[string]string // by path: what was told of a change that waits
	statuses map[string]string // by path: what was told of what is there
}

// settled is a configuration that two readings in a row have shown.
type settled struct {
	*Configuration
	at time.Time
}

// New makes a Reconciler that does nothing yet.
func New(c Config) *Reconciler {
	return &Reconciler{
		cfg: c, changed: make(chan struct{}), told: map[string]string{}, statuses: map[string]string{},
		now: Status{Passes: map[string]int{}, Rows: map[string]int{}},
	}
}

// Run reconciles until ctx ends, which is no error: what is on its way is finished first. The error is ErrElsewhere, or
// one of Connect that another try does not mend.
func (r *Reconciler) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer end(nil)
	reading.Go(func() {
		if err := r.readFiles(ctx); err != nil {
			end(err)
		}
	})
	for wait := passEvery; ctx.Err() == nil; wait = min(2*wait, lastRedial) {
		s, err := r.cfg.Connect(ctx)
		switch {
		case err == nil:
			r.set(func(now *Status) { now.Connected = true })
			begun := time.Now()
			err = r.inSession(ctx, s)
			s.Close()
			r.set(func(now *Status) {
				now.Connected, now.Acts, now.Shut = false, false, false
				now.Rows["waiting"], now.Rows["held"] = 0, 0
			})
			if time.Since(begun) > wait {
				wait = passEvery
			}
		case !errors.Is(err, zkconn.ErrUnreachable) && !errors.Is(err, zkconn.ErrSessionLost) && ctx.Err() == nil:
			return err
		}
		if ctx.Err() == nil {
			r.cfg.Log.Warn("the session has ended; another one follows", "reason", err, "again_in", wait)
			zkconn.Pause(ctx, wait)
		}
	}
	if err := context.Cause(ctx); errors.Is(err, ErrElsewhere) {
		return err
	}
	return nil
}

// readFiles reads the files again and again. What two readings in a row have shown is taken; what does not load is
// told, and changes nothing.
func (r *Reconciler) readFiles(ctx context.Context) error {
	last, taken := "", ""
	for pause := min(r.cfg.Poll, time.Second); ctx.Err() == nil; pause = r.cfg.Poll {
		c, err := r.cfg.Load()
		shows := ""
		switch {
		case err != nil:
			shows = "! " + err.Error()
		case len(c.Want.Declared) == 0:
			err = errors.New("the configuration declares nothing")
			shows = "! " + err.Error()
		default:
			shows = c.Digest + " " + c.Policies
		}
		if shows == last && shows != taken {
			if errors.Is(err, ErrElsewhere) {
				return err
			}
			taken = shows
			r.take(c, err)
		}
		last = shows
		zkconn.Pause(ctx, pause)
	}
	return nil
}

// take makes what was read the configuration, unless err says why it cannot be.
func (r *Reconciler) take(c *Configuration, err error) {
	r.mu.Lock()
	if err != nil {
		r.now.Problem = err.Error()
	} else {
		r.now.Problem, r.now.Config = "", c.Digest
		switch {
		case r.files == nil: // they may be older than those that were taken last
			r.files = &settled{Configuration: c}
		case r.files.Digest != c.Digest:
			r.files = &settled{c, time.Now()}
		default:
			r.files = &settled{c, r.files.at}
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	if err != nil {
		r.cfg.Log.Warn("the files do not load; those of before count", "reason", err)
		r.tell(Event{Type: ConfigRefused, Subject: r.cfg.Stack, Data: map[string]any{"reason": err.Error()}})
		return
	}
	r.cfg.Log.Info("files are loaded", "digest", c.Digest, "declared", len(c.Want.Declared))
	r.tell(Event{Type: ConfigLoaded, Subject: r.cfg.Stack, Data: map[string]any{
		"digest": c.Digest, "declared": len(c.Want.Declared),
	}})
}

// configuration is what the files say, and a channel that is closed when that changes.
func (r *Reconciler) configuration() (*settled, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files, r.changed
}

// inSession takes a seat, and acts while it is the first. It returns why it ends.
func (r *Reconciler) inSession(ctx context.Context, s *zkconn.Session) error {
	store, err := r.cfg.Open(s)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.Context(), func() { end(context.Cause(s.Context())) })()
	place, err := store.TakeSeat(ctx)
	if err != nil {
		return err
	}
	led := make(chan context.Context, 1)
	var waiting sync.WaitGroup
	defer func() {
		end(nil)
		waiting.Wait()
		_ = place.Leave() // else it ends with the session
	}()
	waiting.Go(func() { r.await(ctx, place, led, end) })
	seat := &seated{r: r, session: s, store: store, memory: newMemory()}
	for ctx.Err() == nil {
		if err := seat.follow(ctx, led); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// await waits until the place is the first.
func (r *Reconciler) await(
	ctx context.Context, place *election.Place, led chan<- context.Context, end context.CancelCauseFunc,
) {
	held, err := place.Await(ctx, math.MaxInt64, func(string) { r.cfg.Log.Info("another reconciler acts") })
	if err != nil {
		end(err)
		return
	}
	led <- held
	select {
	case <-held.Done():
		end(context.Cause(held))
	case <-ctx.Done():
	}
}

// seated is a Reconciler in one session.
type seated struct {
	r       *Reconciler
	session *zkconn.Session
	store   *zkstate.Store
	memory  *memory

	acts        time.Time // since when; zero: another one does
	tidy        bool      // the next pass removes what changes have left behind
	tries       int       // passes that have failed in a row
	connections int64     // of the session, that it has had by the pass before
}

// follow reads all from scratch, and then what has changed, for so long as Config.Every. Its error is that of a session
// that has ended, or of ctx.
func (d *seated) follow(ctx context.Context, led <-chan context.Context) error {
	mirror := zkstate.NewMirror(d.session)
	defer mirror.Close()
	tracker := zkstate.NewTracker(mirror, zkstate.TrackerConfig{Home: d.r.cfg.Home, Kinds: d.r.cfg.Kinds})
	defer tracker.Close()
	look := mirror.Look()
	defer func() { look.Close() }()
	scratch := time.After(d.r.cfg.Every)
	for {
		begun := time.Now()
		before := look
		look = mirror.Look()
		files, changed := d.r.configuration()
		again, err := d.pass(ctx, files, &reading{
			Reader: zkstate.NewReader(look, d.r.cfg.Home, d.r.cfg.Kinds...), tracker: tracker, more: d.store.Reader,
		})
		before.Close()
		d.r.passed(time.Since(begun), err)
		switch {
		case d.session.Context().Err() != nil:
			return context.Cause(d.session.Context())
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			d.tries++
			clear(d.memory.idle) // who comes and goes meanwhile is not seen
			d.r.cfg.Log.Warn("a pass has failed", "reason", err)
			again = time.Now().Add(min(time.Second<<min(d.tries, 20), maxRetry))
		default:
			d.tries = 0
		}
		zkconn.Pause(ctx, passEvery-time.Since(begun))
		var due <-chan time.Time
		if !again.IsZero() {
			due = time.After(time.Until(again))
		}
		if err != nil { // what has changed meanwhile may be why: but not at once
			select {
			case <-due:
			case <-changed:
			case <-led:
				d.begin()
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-tracker.Changed():
		case <-look.Changed():
		case <-changed:
		case <-due:
		case <-scratch:
			d.tidy = true
			return nil
		case <-led:
			d.begin()
		case <-ctx.Done():
		}
	}
}

// begin notes that this one acts from now on.
func (d *seated) begin() {
	d.acts = time.Now()
	d.memory = newMemory()
	d.r.cfg.Log.Info("this reconciler acts")
	d.r.set(func(now *Status) { now.Acts = true })
	d.r.tell(Event{Type: LeaderChanged, Subject: d.r.cfg.Stack, Data: map[string]any{"by": d.store.By()}})
}

// keep changes what is kept of the stack's reconcilers.
func (d *seated) keep(ctx context.Context, edit func(*znode.Reconcile)) (znode.Reconcile, error) {
	kept, err := d.store.EditReconcile(ctx, func(k *znode.Reconcile) bool {
		edit(k)
		return true
	})
	if err != nil {
		err = fmt.Errorf("what reconcilers keep: %w", err)
	}
	return kept, err
}
