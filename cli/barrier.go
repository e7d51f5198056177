package cli

import (
	"time"

	"github.com/spf13/cobra"

	"muster/worker"
	"muster/wrap"
	"muster/zkstate/znode"
)

func newBarrierCmd(p *process) *cobra.Command {
	var round int
	var timeout time.Duration
	var b wrap.Barrier
	cmd := &cobra.Command{
		Use:   "barrier NAME",
		Short: "Inside a worker's command: wait until all workers are here",
		Long: `Returns when every worker of the job has come to the barrier of this name; with
exit code 71 when the round was aborted, for everybody, naming who is missing.
An abort is final, unless every worker gives --retry: then who comes again is at
the next attempt. The timeout has to be longer than a restart takes.
Each call is the next round; --round makes repeating it after a crash safe.`,
		Example: `  load && muster barrier loaded --round 1 && compute
  until muster barrier epoch --round 7 --timeout 5m --retry; do sleep 1; done`,
		Args: argCount(1, 1, "the name of a barrier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := (worker.Barrier{Name: args[0], Round: &round}).Check(); err != nil {
				return usagef("muster barrier NAME --round 0", "%w", err)
			}
			if b.Name, b.Timeout = args[0], socketTimeout(timeout); cmd.Flags().Changed("round") {
				b.Round = &round
			}
			return p.askWorker("barrier", func(c *wrap.Client) error { return c.Barrier(cmd.Context(), b) })
		},
	}
	cmd.Flags().IntVar(&round, "round", 0, "round `N`: a number that only grows; default the next one")
	cmd.Flags().BoolVar(&b.Live, "live", false, "wait until all are here and alive at one moment")
	cmd.Flags().BoolVar(&b.Retry, "retry", false, "after an abort let all try again: say so at every call of NAME")
	cmd.Flags().DurationVar(&timeout, "timeout", 0,
		"abort the round for everybody after `DURATION`; default the job's barrier timeout")
	return cmd
}

// afterAbort is the next step after an abort.
func afterAbort(e *worker.AbortedError) string {
	switch start := e.Name == znode.StartBarrier; {
	case start && e.Retry:
		return "start the worker again, as the others are: all that are there at one time pass. " +
			"muster status NAME shows who is live"
	case start:
		return "make the job anew: muster terminate NAME, then muster apply"
	case e.Retry:
		return "call it again, as the others do; muster members --live shows who is here"
	}
	return "give a later --round, or let every worker give --retry at a barrier of another name; " +
		"muster members --live shows who is here"
}
