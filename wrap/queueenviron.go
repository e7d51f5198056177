package wrap

import "muster/tasks"

// The variables that the command of a task or of a completed batch is given, besides RootVariable, IdentityVariable and
// AttemptVariable. Only that of a task has TaskVariable; only that of a batch has the last two.
const (
	QueueVariable = "MUSTER_QUEUE"
	BatchVariable = "MUSTER_BATCH"
	TaskVariable  = "MUSTER_TASK" // its index, from 0
	DoneVariable  = "MUSTER_DONE" // how many of the batch's tasks have a result
	DeadVariable  = "MUSTER_DEAD" // how many of them failed for good
)

// environment is what a command for p is told: Config's, with what it should know about its process, and these
// variables.
func (r *queueRun) environment(p *tasks.Process, more ...[2]string) []string {
	of := r.c.Process
	return setVariables(r.c.Environ, append([][2]string{
		{QueueVariable, of.Queue}, {RootVariable, of.Root}, {IdentityVariable, p.Identity},
		{BatchVariable, ""}, {TaskVariable, ""}, {AttemptVariable, ""}, {DoneVariable, ""}, {DeadVariable, ""},
	}, more...))
}
