package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"muster/zkstate/zkconn"
)

// watchEvery is how often status --watch reads ZooKeeper.
const watchEvery = time.Second

// watch calls show once or, with again, whenever what it writes changes: a terminal is redrawn, a pipe gets one block
// after the other. While no server of ZooKeeper answers, it prints when it was last read. It ends with ctx or when the
// reader closes its end. Notes go to standard error or, with again, to the same place; no notes go into JSON.
func (p *process) watch(
	ctx context.Context, scope *searchScope, again, asJSON bool, show func(to, notes io.Writer) error,
) error {
	if !again {
		return show(p.out, p.err)
	}
	notes := func(to io.Writer) io.Writer {
		if asJSON {
			return io.Discard
		}
		return to
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last, shown []byte
	var at time.Time // of last
	for p.out.err == nil {
		var now bytes.Buffer
		var found finding
		err := p.reconnect(ctx, scope)
		if err == nil {
			err = show(&now, notes(&now))
		}
		switch noAnswer := errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnreachable); {
		case ctx.Err() != nil:
			return nil
		case noAnswer && last != nil:
			now.Reset()
			now.Write(last)
			fmt.Fprintf(notes(&now), "ZooKeeper does not answer. This is how it was at %s.\n",
				at.Format(time.TimeOnly))
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

// reconnect opens another session if the old one is lost.
func (p *process) reconnect(ctx context.Context, scope *searchScope) error {
	if scope.session.Context().Err() == nil {
		return nil
	}
	s, err := p.connect(ctx, scope.target)
	if err == nil {
		scope.session = s
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
