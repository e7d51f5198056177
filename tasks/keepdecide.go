package tasks

import (
	"time"

	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// repair is what the keeper does about a batch.
type repair int

const (
	repairNone      repair = iota
	repairEnd              // end it
	repairLost             // Redis does not have it: name it
	repairReopen           // Redis has all its tasks, but went back to before it was opened
	repairSet              // Redis has another weight or state
	repairOpened           // its submitter has opened it, and not said so
	repairCompleted        // note that it is completed
	repairResumed          // note that it is not, after all
	repairRetried          // who retried its dead tasks is gone
)

// String is for the log; "" if nothing is done.
func (r repair) String() string {
	return [...]string{
		"", "ended", "", "opened in redis", "set in redis", "opened", "noted that it is completed",
		"noted that it goes on", "noted that nobody retries it",
	}[r]
}

// decision is a repair; of repairEnd also how the batch ends.
type decision struct {
	repair
	how znode.EndState
}

// decide says what to do about a batch, of which b is what Redis has of this life; nil: nothing that can be used. now
// is ZooKeeper's time.
func decide(m Manifest, b *store.Batch, now time.Time, l keepLimits) decision {
	switch {
	case m.Tasks == 0: // it cannot be decoded
		return decision{}
	case m.State == znode.BatchCancelled:
		return decision{repairEnd, znode.EndCancelled}
	case m.State == znode.BatchSubmitting:
		return decideSubmitting(m, b, now.Sub(m.Modified), l)
	case b == nil:
		return decision{repair: repairLost}
	case b.State == string(znode.BatchSubmitting):
		if b.Tasks == m.Tasks {
			return decision{repair: repairReopen}
		}
		return decision{repair: repairLost}
	case b.Version < int64(m.Version) && (b.State != string(m.State) || b.Weight != m.Weight):
		return decision{repair: repairSet}
	}
	return decideCompleted(m, completed(*b), now, l)
}

// decideSubmitting is for a batch that nobody has written to for a while.
func decideSubmitting(m Manifest, b *store.Batch, idle time.Duration, l keepLimits) decision {
	switch {
	case b != nil && b.State != string(znode.BatchSubmitting):
		if idle >= l.finish {
			return decision{repair: repairOpened}
		}
	case idle >= l.giveUp && m.From == "": // or else tasks that are there only would go
		return decision{repairEnd, znode.EndUnattended}
	}
	return decision{}
}

// decideCompleted is for a batch whose results no watcher collects.
func decideCompleted(m Manifest, all bool, now time.Time, l keepLimits) decision {
	keep, kept := m.Results.Keep()
	switch {
	case m.Retrying && now.Sub(m.Modified) >= l.giveUp:
		return decision{repair: repairRetried}
	case m.Retrying:
	case m.Results == queue.ResultsWatcher:
	case all && m.Results == queue.ResultsDiscard:
		return decision{repairEnd, znode.EndDiscarded}
	case all && m.Completed.IsZero():
		return decision{repair: repairCompleted}
	case !all && !m.Completed.IsZero():
		return decision{repair: repairResumed}
	case all && kept && now.Sub(m.Completed) >= keep:
		return decision{repairEnd, znode.EndDiscarded}
	case all && !kept && now.Sub(m.Modified) >= l.attend:
		return decision{repairEnd, znode.EndUnattended}
	}
	return decision{}
}
