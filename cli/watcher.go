package cli

import (
	"context"

	"github.com/spf13/cobra"

	"muster/wrap"
)

func newWatcherCmd(p *process) *cobra.Command {
	var o queueOptions
	cmd := &cobra.Command{
		Use:   "watcher QUEUE -- COMMAND [ARGS...]",
		Short: "Do something with the results of completed batches of a queue",
		Long: `Runs the command for each completed batch, one after the other. Each batch goes
to one of the queue's watchers. The command gets what became of the tasks on its
standard input, one line of JSON for each: index, attempt, exit, ms, host, and
result, or base64 if that is no text; a dead task has dead, error and task.
MUSTER_BATCH is the id, MUSTER_ATTEMPT the try, from 1.

If the command ends with 0, the batch ends: its tasks and results are deleted.
Otherwise it goes back, and a watcher gets it again after the backoff of the
queue, as often as its attempts say; then it waits for "muster retry". The
command may run twice for one batch, if its watcher dies before that is noted.
It has no timeout. When the watcher is stopped it gets SIGTERM, and SIGKILL
after the grace; nothing is charged then. When the watcher dies or loses its
session, it is killed.`,
		Example: `  muster watcher primes -- ./collect
  muster watcher primes -- sh -c 'jq -r .result > out/$MUSTER_BATCH'
  muster watcher primes -- sh -c 'muster submit next --id "$MUSTER_BATCH"'`,
	}
	return p.queueProcessCmd(cmd, &o, func(ctx context.Context) error {
		return p.runQueueProcess(o, "muster watcher", func(c wrap.QueueConfig) wrap.Result {
			return wrap.RunWatcher(ctx, c)
		})
	})
}
