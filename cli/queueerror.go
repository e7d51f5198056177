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
	at := text.ShellWord(f.path)
	kind, next := error(nil), ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrReply):
		kind, next = errNoRedis, "look what answers there, or correct where the queue says its Redis is: muster explain "+at
	case errors.Is(err, tasks.ErrRedis):
		kind, next = errNoRedis, "start Redis, or look at its address: muster explain "+at
	case tasks.Unfit(err):
		kind, next = errNoRedis, "correct that Redis, or where the queue says it is: muster explain "+at
	case errors.Is(err, store.ErrHost):
		kind, next = errNoRedis, "add the host to "+queue.EnvHosts+", if it may have the password"
	case tasks.Denied(err):
		kind, next = errNoRedis, "set "+queue.EnvPassword+", and "+queue.EnvUsername+" if it has users, and "+
			queue.EnvHosts+" to the host"
	case errors.Is(err, tasks.ErrNoQueue):
		next = "muster status --root " + text.ShellWord(path.Dir(f.path)) +
			" lists the queues there; if this one is missing, declare it, then: muster apply"
	case errors.Is(err, tasks.ErrHeld):
		next = "wait until the other process has ended, or give another --identity"
	case errors.Is(err, tasks.ErrNoBatch):
		next = "muster batches " + at + " lists those that there are"
	case errors.Is(err, tasks.ErrNoDead):
		next = "muster batch " + f.words()
	case errors.Is(err, tasks.ErrManifest):
		next = "delete that znode with another program; live processes then delete its tasks"
	default:
		kind, next = errIncomplete, batchNext(err, f)
	}
	if next == "" {
		return err
	}
	return &problem{kind, err, next}
}

// batchNext is what to do about a batch that is not in a state in which what was asked for can be done; "" if err is
// none of that.
func batchNext(err error, f foundQueue) string {
	switch {
	case errors.Is(err, store.ErrDead):
		return "muster retry, or drop --dead, " + f.words()
	case errors.Is(err, store.ErrBroken):
		return "muster cancel " + f.words() + ", then submit it again"
	case errors.Is(err, tasks.ErrLost), errors.Is(err, store.ErrNoBatch):
		return "submit it again with its --id, or: muster cancel " + f.words()
	case errors.Is(err, tasks.ErrSubmitting):
		return "wait for that; if its submitter is gone, submit it again with its --id"
	case errors.Is(err, tasks.ErrGoesOn):
		return "muster batch " + f.words() + " shows what is left of them"
	case errors.Is(err, store.ErrClaimed):
		return "wait until the watcher has ended, or stop it"
	case errors.Is(err, tasks.ErrCancelled), errors.Is(err, tasks.ErrIncomplete):
		return "muster batch " + f.words()
	}
	return ""
}
