package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"muster/text"
	"muster/wrap"
)

func newSelfCmd(p *process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "self",
		Short: "Inside a worker's command: say which worker this is",
		Long:  `Says which worker of which job this is, asking the worker that runs the command.`,
		Args:  argCount(0, 0, ""),
		RunE:  func(cmd *cobra.Command, _ []string) error { return runSelf(cmd.Context(), p, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func runSelf(ctx context.Context, p *process, asJSON bool) error {
	c, err := p.workerClient("self")
	if err != nil {
		return err
	}
	self, err := c.Self(ctx)
	if err != nil {
		return workerError("self", err)
	}
	if asJSON {
		return p.printJSON(self)
	}
	me := text.Escape(self.Identity)
	fmt.Fprintf(p.out, "worker %d of %d of %s/%s: %s\n", self.ID, self.Workers, self.Root, self.Job, me)
	return nil
}

// workerClient returns a client of the worker whose command runs this process.
func (p *process) workerClient(command string) (*wrap.Client, error) {
	socket := p.environ.value(wrap.SocketVariable)
	if socket == "" {
		return nil, usagef("muster worker --job NAME -- COMMAND",
			"muster %s works inside a worker's command, and there is no %s here", command, wrap.SocketVariable)
	}
	return wrap.NewClient(socket), nil
}

// workerError adds the next step to a worker's answer to command.
func workerError(command string, err error) error {
	switch {
	case errors.Is(err, wrap.ErrRequest):
		return &problem{errUsage, err, "muster " + command + " --help"}
	case errors.Is(err, wrap.ErrLate):
		next := "check the worker's connection to ZooKeeper and ask again"
		if command == "barrier" {
			next += ", with --round, for an arrival stands"
		}
		return &problem{nil, err, next}
	case errors.Is(err, wrap.ErrUnavailable):
		return &problem{nil, err, "inside a worker's command: the worker has ended, and its own last line says why; " +
			"anywhere else: muster status"}
	}
	return err
}

func (p *process) printJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printJSONLine prints v as one line.
func (p *process) printJSONLine(v any) error { return json.NewEncoder(p.out).Encode(v) }
