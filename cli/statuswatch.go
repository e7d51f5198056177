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

// watch prints what show writes whenever it changes: a terminal is redrawn, a pipe gets one block after the other.
// While no server of ZooKeeper answers, it prints when it was last read. Notes go where note says. It ends with ctx or
// when the reader closes its end.
func (p *process) watch(
	ctx context.Context, scope *searchScope, note func(io.Writer) io.Writer, show func(io.Writer) error,
) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last, shown []byte
	var at time.Time // of last
	for p.out.err == nil {
		var now bytes.Buffer
		var found finding
		err := p.reconnect(ctx, scope)
		if err == nil {
			err = show(&now)
		}
		switch noAnswer := errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnreachable); {
		case ctx.Err() != nil:
			return nil
		case noAnswer && last != nil:
			now.Reset()
			now.Write(last)
			fmt.Fprintf(note(&now), "ZooKeeper does not answer. This is how it was at %s.\n",
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
