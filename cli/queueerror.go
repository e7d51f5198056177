package cli

import (
	"errors"
	"path"

	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/text"
)

// errNoRedis is the kind of problems of who cannot use Redis.
var errNoRedis = errors.New("no redis")

// queueError adds to an error about a queue, one of its processes or a batch what the user should do. It is the one
// list of these: of f only the path has to be known, and of errors about a batch its id.
func queueError(err error, f foundQueue) error {
	return explain(err, []remedy{
		{errNoRedis, "look what answers there, or correct where the queue says its Redis is: muster explain {queue}",
			of{store.ErrReply}},
		{errNoRedis, "start Redis, or look at its address: muster explain {queue}", of{tasks.ErrRedis}},
		{errNoRedis, "correct that Redis, or where the queue says it is: muster explain {queue}", of{tasks.Unfit}},
		{errNoRedis, "add the host to " + queue.EnvHosts + ", if it may have the password", of{store.ErrHost}},
		{errNoRedis, "set " + queue.EnvPassword + ", and " + queue.EnvUsername + " if it has users, and " +
			queue.EnvHosts + " to the host", of{tasks.Denied}},
		{nil, "muster status --root {root} lists the queues there; if this one is missing, declare it, then: muster apply",
			of{tasks.ErrNoQueue}},
		{nil, "wait until the other process has ended, or give another --identity", of{tasks.ErrHeld}},
		{nil, "muster batches {queue} lists those that there are", of{tasks.ErrNoBatch}},
		{nil, "muster batch {batch}", of{tasks.ErrNoDead}},
		{nil, "delete that znode with another program; live processes then delete its tasks", of{tasks.ErrManifest}},
		// The batch is not in a state in which what was asked for can be done.
		{errIncomplete, "muster retry, or drop --dead, {batch}", of{store.ErrDead}},
		{errIncomplete, "muster cancel {batch}, then submit it again", of{store.ErrBroken}},
		{errIncomplete, "submit it again with its --id, or: muster cancel {batch}", of{tasks.ErrLost, store.ErrNoBatch}},
		{errIncomplete, "wait for that; if its submitter is gone, submit it again with its --id", of{tasks.ErrSubmitting}},
		{errIncomplete, "muster batch {batch} shows what is left of them", of{tasks.ErrGoesOn}},
		{errIncomplete, "wait until the watcher has ended, or stop it", of{store.ErrClaimed}},
		{errIncomplete, "muster batch {batch}", of{tasks.ErrCancelled, tasks.ErrIncomplete}},
	}, "{queue}", text.ShellWord(f.path), "{root}", text.ShellWord(path.Dir(f.path)), "{batch}", f.words())
}
