package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/zkstate/zkconn"
)

// watchEvery is how often a watched status is read again. It is drawn only when something changed.
const watchEvery = time.Second

// watchStatus shows the status whenever it differs from before: a terminal is redrawn, a pipe gets one block after the other. While no
// server answers it says of when the last one is. It ends with ctx, or when nobody reads any more.
func (p *process) watchStatus(ctx context.Context, w *where, o statusOptions, pattern string) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last, shown []byte
	var at time.Time // of last
	for p.out.err == nil {
		var now bytes.Buffer
		var found finding
		err := p.renew(ctx, w)
		if err == nil {
			err = p.status(ctx, &now, *w, o, pattern)
		}
		switch away := errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnreachable); {
		case ctx.Err() != nil:
			return nil
		case away && last != nil:
			now.Reset()
			now.Write(last)
			fmt.Fprintf(o.notes(p, &now), "ZooKeeper does not answer. This is how it was at %s.\n", at.Format(time.TimeOnly))
		case err != nil && !errors.As(err, &found):
			return err
		default:
			last, at = bytes.Clone(now.Bytes()), time.Now()
		}
		if !bytes.Equal(shown, now.Bytes()) {
			p.draw(now.Bytes(), shown == nil)
			shown = now.Bytes()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// renew opens another session where the old one is lost.
func (p *process) renew(ctx context.Context, w *where) error {
	if w.session.Context().Err() == nil {
		return nil
	}
	s, err := p.connect(ctx, w.target)
	if err == nil {
		w.session = s
	}
	return err
}

// draw writes a whole status.
func (p *process) draw(status []byte, first bool) {
	switch {
	case isTerminal(p.out):
		fmt.Fprint(p.out, "\x1b[H\x1b[2J")
	case !first:
		fmt.Fprintln(p.out)
	}
	_, _ = p.out.Write(status)
}
