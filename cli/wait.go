package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"muster/wrap"
)

func newWaitCmd(p *process) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Inside a worker's command: wait until all workers have joined",
		Long: `Returns when all workers of the job have joined, whether or not they are still
live; with exit code 70 when they have not in time, naming who is missing.`,
		Example: `  muster wait --timeout 2m && compute`,
		Args:    argCount(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runWait(cmd.Context(), p, timeout) },
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait so long; default, and at most: the job's join timeout")
	return cmd
}

func runWait(ctx context.Context, p *process, timeout time.Duration) error {
	c, err := p.workerClient("wait")
	if err != nil {
		return err
	}
	return workerError("wait", c.Wait(ctx, wrap.Wait{Timeout: socketTimeout(timeout)}))
}

// socketTimeout formats a duration for the worker's socket. 0 is empty: the worker chooses.
func socketTimeout(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
