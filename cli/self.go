package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"muster/text"
	"muster/worker"
	"muster/wrap"
)

func newSelfCmd(p *process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "self",
		Short: "Inside a worker's command: say which worker this is",
		Long:  `Says which worker of which job this is, asking the worker that runs the command.`,
		Args:  argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.askWorker("self", func(c *wrap.Client) error { return runSelf(cmd.Context(), p, c, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func runSelf(ctx context.Context, p *process, c *wrap.Client, asJSON bool) error {
	self, err := c.Self(ctx)
	switch {
	case err != nil:
		return err
	case asJSON:
		return p.printJSON(self)
	}
	me := text.Escape(self.Identity)
	fmt.Fprintf(p.out, "worker %d of %d of %s/%s: %s\n", self.ID, self.Workers, self.Root, self.Job, me)
	return nil
}

// inside returns a client of the worker or member whose command runs this process. of and start say what that is.
func (p *process) inside(command, of, start string) (*wrap.Client, error) {
	socket := p.environ.value(wrap.SocketVariable)
	if socket == "" {
		return nil, usagef(start, "muster %s works inside a %s's command, and there is no %s here", command, of,
			wrap.SocketVariable)
	}
	return wrap.NewClient(socket), nil
}

// askWorker calls ask with a client of the worker whose command runs this process, and explains its answer.
func (p *process) askWorker(command string, ask func(*wrap.Client) error) error {
	c, err := p.inside(command, "worker", "muster worker --job NAME -- COMMAND")
	if err != nil {
		return err
	}
	return workerError(command, ask(c))
}

// workerError adds the next step to a worker's answer to command.
func workerError(command string, err error) error {
	late := "check the worker's connection to ZooKeeper and ask again"
	if command == "barrier" {
		late += ", with --round, for an arrival stands"
	}
	return explain(err, []remedy{
		{nil, "keep it elsewhere, and publish where it is", of{worker.ErrDataFull}},
		{nil, "muster members --live shows who is there; ask again, or raise --timeout",
			of{new(*worker.UnpublishedError)}},
		{errUsage, "muster " + command + " --help", of{wrap.ErrRequest}},
		{nil, late, of{wrap.ErrLate}},
		{
			nil, "inside a worker's command: the worker has ended, and its own last line says why; " +
				"anywhere else: muster status", of{wrap.ErrUnavailable},
		},
	})
}

func (p *process) printJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printJSONLine prints v as one line.
func (p *process) printJSONLine(v any) error { return json.NewEncoder(p.out).Encode(v) }
