package member

import (
	"time"
)

// probes is how many times in a session timeout a member asks ZooKeeper something. A process that holds a duty must
// stop before its session can expire, counted from its last answered request. The library asks three times in a session
// timeout, so a server that hangs would end healthy duties before another one could be asked. Asking more often makes
// the take-over after a crash later, because the session expires a timeout after the last request.
const probes = 5

// leaveAfter is how many tenths of a session timeout a server may take to answer before it is left for another. With
// the time between two probes that is four tenths, before the commands of duties are asked to end at five.
const leaveAfter = 2

// probe keeps the time of the last answered request recent until the membership ends.
func (m *Member) probe() {
	m.session.LeaveAfter(m.session.Timeout() * leaveAfter / 10)
	tick := time.NewTicker(max(m.session.Timeout()/probes, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		_ = m.session.Sync(m.ctx, m.live()) // it fails only when the session or the membership ends
	}
}
