package docs

import "strings"

// Words is the one table of what other tools call things that have another name here: for unknown commands and blocks,
// and for "muster explain WORD". It has a next step for each word. The words of a row mean the same.
var Words = wordTable(
	"batch: muster queue batches QUEUE/BATCH",
	"batches: muster queue batches QUEUE",
	"cancel revoke: muster queue cancel QUEUE/BATCH",
	"drop: muster queue drop QUEUE",
	"retry requeue: muster queue retry QUEUE",
	"handover failover failback: muster group handover GROUP/DUTY",
	"run trigger dispatch: muster group run GROUP/CRON",
	"suspend: muster pause NAME, muster group pause GROUP/DUTY, or: muster queue pause QUEUE",
	"unpause: muster resume NAME, muster group resume GROUP/DUTY, or: muster queue resume QUEUE",
	"self: muster members --self",

	"destroy delete remove rm purge: remove the job's block and: muster apply; or: muster terminate JOB",
	"stop kill down: muster terminate JOB",
	"deploy create up: muster apply",
	"diff refresh preview: muster plan",
	"import: muster export",
	"scale resize: change workers in the configuration, then: muster apply",
	"rollback revert undo: muster history shows what was applied; apply the files of then",
	"moved: docs/howto/move-a-root.md; a job under another name is another job",
	"removed: remove the block, then: muster apply",
	"module: the files of a directory are one configuration; docs/language.md says what they share",

	"start restart exec: muster worker --job JOB -- COMMAND",
	"leader who: muster follow GROUP/DUTY says who has it; muster member --group GROUP -- COMMAND takes part",
	"elect election lock campaign: muster member --group GROUP -- COMMAND",
	"schedule cron beat: declare a cron in a group, then: muster member --group GROUP --duties DIR",
	"enqueue push send produce: muster submit QUEUE",
	"consume process dequeue: muster executor QUEUE -- COMMAND",

	"ps ls list top node nodes pod pods job jobs alloc: muster status",
	"describe inspect: muster explain NAME",
	"logs log: muster explain GROUP/CRON shows the runs of a cron; a worker's command writes where the worker does",
	"dashboard ui web flower metrics prometheus: muster serve",
	"monitor events watch: muster status --watch",
)

func wordTable(rows ...string) map[string]string {
	table := map[string]string{}
	for _, row := range rows {
		names, next, _ := strings.Cut(row, ": ")
		for _, name := range strings.Fields(names) {
			table[name] = next
		}
	}
	return table
}
