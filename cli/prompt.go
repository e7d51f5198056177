package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/plan"
	"muster/report"
	"muster/text"
)

// confirm asks whether to make the changes of a plan, and counts them. The answer has to be "yes" or, if some of them
// delete a job or what was saved in one, their number. Anything else declines.
func (p *process) confirm(ctx context.Context, pl plan.Plan) error {
	changes := pl.Changes()
	want, all := "yes", text.Count(len(changes), "change")+" ("+report.ChangeCounts(pl)+")"
	if deletes := len(plan.Deletions(changes)); deletes > 0 {
		want = strconv.Itoa(deletes)
		some := plan.DeletionsText(changes)
		fmt.Fprintf(p.err, "\n%s would be deleted. To apply %s, type the number of deletes: ", some, all)
	} else {
		fmt.Fprintf(p.err, "\nTo apply %s, type yes: ", all)
	}
	answer, err := p.ask(ctx)
	switch {
	case err != nil:
		return err
	case answer != want:
		return declined(answer, want)
	}
	return nil
}

// declined is the error for an answer that is not the one that is wanted.
func declined(answer, want string) error {
	err := fmt.Errorf("declined: %q is not %q; nothing was changed", answer, want)
	return &problem{errDeclined, err, "the same command asks again; --yes does not ask"}
}

// ask reads a line from standard input. When ctx ends it returns, but its goroutine reads on until the process ends.
func (p *process) ask(ctx context.Context) (string, error) {
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	go func() {
		line, err := bufio.NewReader(p.in).ReadString('\n')
		replies <- reply{line, err}
	}()
	select {
	case r := <-replies:
		if r.err != nil { // no line end was typed
			fmt.Fprintln(p.err)
		}
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return "", r.err
		}
		return strings.TrimSpace(r.line), nil
	case <-ctx.Done():
		fmt.Fprintln(p.err)
		return "", context.Cause(ctx)
	}
}
