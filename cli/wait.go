package cli

import (
	"time"

	"github.com/spf13/cobra"

	"muster/wrap"
)

func newWaitCmd(p *process) *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait [JOB | GROUP | QUEUE --for STATE]",
		Short: "Wait until a job is running or completed; inside a worker: for all",
		Long: `Waits until a job, a group or a queue is in one of these states:

  ready      nobody has joined the job, or is live in the group or queue
  running    all workers have joined and none is missing; every duty of a group
             is held; nothing is amiss in a queue
  degraded   workers, holders of duties, or processes of a queue are missing
  completed  all workers have completed: now, or in a run that ends from now on
  stale      no worker is live, and the run is not done
  empty      the queue has no unfinished batches
  missing    it does not exist

Ends with 4 when the time is up, or when it is deleted and is not waited for as
missing; with 74 when it never was there, after --timeout or 1m40s.

Inside a worker's command, without a name: returns when all workers of the job
have joined, whether or not they are still live; with exit code 70 when they
have not in time, naming who is missing.`,
		Example: `  muster wait nightly --for completed --run 2026-11-21 --timeout 2h
  muster wait nightly --for completed,stale --json
  muster wait primes --for empty
  muster wait --timeout 2m && compute        inside a worker's command`,
		Args: argCount(0, 1, "the name, address or path of one job, group or queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.states) == 0 {
				return p.askWorker("wait", func(c *wrap.Client) error {
					return c.Wait(cmd.Context(), wrap.Wait{Timeout: socketTimeout(o.timeout)})
				})
			}
			return runWaitFor(cmd.Context(), p, o, firstArg(args))
		},
	}
	o.searchFlags.addTo(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.states, "for", nil, "wait until it is in one of these states, a `LIST` with commas")
	cmd.Flags().StringVar(&o.run, "run", "", "completed means the run of this `NAME`: what its workers gave as --run")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0,
		"wait `DURATION`; default for ever; inside a worker's command the job's join timeout, which is the maximum there")
	cmd.Flags().BoolVar(&o.json, "json", false, "print as JSON what was reached, and what it is now")
	p.completeSearch(cmd, &o.searchFlags)
	completeList(cmd, "for", awaitable())
	cmd.ValidArgsFunction = p.completeJob(&o.searchFlags)
	return cmd
}

// socketTimeout formats a duration for the worker's socket. 0 is empty: the worker chooses.
func socketTimeout(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
