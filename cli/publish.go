package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"muster/worker"
	"muster/wrap"
	"muster/zkstate/znode"
)

func newPublishCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "publish KEY [VALUE|-]",
		Short: "Inside a worker's command: leave a value for the others",
		Long: `Publishes a value of at most 64 KiB under a key of this worker, or standard
input. The other workers read it with "muster get". Publishing a key again
replaces its value. Values outlive the worker, and go with the run. Ends with 73
if there is no room for the value.`,
		Example: `  muster publish token "$(openssl rand -hex 16)"
  ./plan-shards | muster publish shards`,
		Args: argCount(1, 2, "a key, and a value"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKey("muster publish --help", args[0]); err != nil {
				return err
			}
			return p.askWorker("publish", func(c *wrap.Client) error { return runPublish(cmd.Context(), p, c, args[0], args[1:]) })
		},
	}
}

func runPublish(ctx context.Context, p *process, c *wrap.Client, key string, value []string) error {
	var body []byte
	var err error
	if len(value) == 1 && value[0] != "-" {
		body = []byte(value[0])
	} else if body, err = io.ReadAll(io.LimitReader(p.in, znode.MaxValue+1)); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if err = worker.CheckValue(key, len(body)); err != nil {
		return err
	}
	return c.Publish(ctx, wrap.Publish{Key: key, Value: body})
}
