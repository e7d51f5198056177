package cli

import (
	"context"
	"errors"
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
		RunE: func(cmd *cobra.Command, args []string) error { return runPublish(cmd.Context(), p, args[0], args[1:]) },
	}
}

func runPublish(ctx context.Context, p *process, key string, value []string) error {
	if err := checkValueKey("publish", key); err != nil {
		return err
	}
	c, err := p.workerClient("publish")
	if err != nil {
		return err
	}
	var body []byte
	if len(value) == 1 && value[0] != "-" {
		body = []byte(value[0])
	} else if body, err = io.ReadAll(io.LimitReader(p.in, znode.MaxValue+1)); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if err = worker.CheckValue(key, len(body)); err == nil {
		err = c.Publish(ctx, wrap.Publish{Key: key, Value: body})
	}
	return dataError("publish", err)
}

func checkValueKey(command, key string) error {
	if err := znode.CheckKey(key); err != nil {
		return usagef("muster "+command+" --help", "%w", err)
	}
	return nil
}

// dataError adds the next step to a worker's answer about data.
func dataError(command string, err error) error {
	switch {
	case errors.Is(err, worker.ErrDataFull):
		return &problem{nil, err, "keep it elsewhere, and publish where it is"}
	case errors.As(err, new(*worker.UnpublishedError)):
		return &problem{nil, err, "muster members --live shows who is there; ask again, or raise --timeout"}
	}
	return workerError(command, err)
}
