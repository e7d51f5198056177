package cli

// words says what a word of another tool is called here, as the next step after an unknown command. TestWords holds the
// commands in it against those that there are.
var words = map[string]string{
	"batch": "muster queue batches QUEUE/BATCH", "batches": "muster queue batches QUEUE",
	"cancel": "muster queue cancel QUEUE/BATCH", "drop": "muster queue drop QUEUE", "retry": "muster queue retry QUEUE",
	"handover": "muster group handover GROUP/DUTY", "run": "muster group run GROUP/CRON",
	"pause":  "muster group pause GROUP/DUTY, or: muster queue pause QUEUE",
	"resume": "muster group resume GROUP/DUTY, or: muster queue resume QUEUE",
	"self":   "muster members --self",

	"destroy": "remove the job's block and: muster apply; or: muster terminate JOB",
}
