package page

import (
	"context"
	"maps"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// What follows stands for zkstate.Mirror and zkstate.Tracker until they are there: it reads everything every second.

type mirror struct{ s *zkconn.Session }

type look struct {
	*zkconn.Session
	old chan struct{}
}

func newMirror(s *zkconn.Session) *mirror { return &mirror{s} }

func (m *mirror) Look() *look {
	l := &look{m.s, make(chan struct{})}
	time.AfterFunc(time.Second/2, func() { close(l.old) })
	return l
}

func (l *look) Changed() <-chan struct{} { return l.old }
func (l *look) Close()                   {}

type trackerConfig struct {
	Home  string
	Kinds []zkstate.Kind
	More  func(ctx context.Context, r *zkstate.Reader, path string, o *resource.Observed) error
}

type tracker struct {
	m     *mirror
	c     trackerConfig
	l     *look
	state plan.State
}

func newTracker(m *mirror, c trackerConfig) *tracker { return &tracker{m: m, c: c, l: m.Look()} }

func (t *tracker) Update(ctx context.Context, roots []string) ([]string, error) {
	t.l = t.m.Look()
	r := zkstate.NewReader(t.l, t.c.Home, t.c.Kinds...)
	state, err := r.Read(ctx, roots)
	if err != nil {
		return nil, err
	}
	t.state = plan.State{Unlisted: state.Unlisted, Found: maps.Clone(state.Found)}
	for path, o := range state.Found {
		if t.c.More != nil {
			if err := t.c.More(ctx, r, path, &o); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (t *tracker) State() plan.State        { return t.state }
func (t *tracker) Changed() <-chan struct{} { return t.l.Changed() }
func (t *tracker) Close()                   {}
