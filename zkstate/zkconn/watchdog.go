package zkconn

import (
	"fmt"
	"log/slog"
	"time"
)

// shortestLimit is the least that LeaveAfter takes. A healthy server may need that long for a write.
const shortestLimit = 250 * time.Millisecond

// granted is called when a server has accepted the connection, and reports whether it is for this session: the first
// answer of a server decides which one that is. The caller holds the lock of c.
func (s *Session) granted(c *conn, id int64, secret []byte, timeout time.Duration) bool {
	s.hosts.setReason(c.to.server, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 {
		s.id, s.secret = id, string(secret)
	}
	if s.id != id || s.secret != string(secret) {
		return false
	}
	s.timeout = timeout
	s.answered = c.handshakeSent
	s.confirm(c.handshakeSent)
	return true
}

// confirm is called when the leader has taken part in an answer. The caller holds the mutex.
func (s *Session) confirm(sent time.Time) {
	if s.leaveAfter > 0 {
		s.silent = max(s.silent, time.Since(s.confirmed))
	}
	s.confirmed = sent
}

// replied is called when a request has been answered.
func (s *Session) replied(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.at.After(s.answered) {
		s.answered = r.at
	}
	if r.at.After(s.confirmed) && asksLeader(r.op) {
		s.confirm(r.at)
	}
	s.closeConfirmed = s.closeConfirmed || r.op == opClose
}

// watchdog ends the session when its timeout has passed since the last answered request was sent. From then on the
// servers may have expired it, even if none can be reached. watchdog also closes the connection to a server that
// answers pings but not a request. It calls itself again at the time when either can happen next.
func (s *Session) watchdog() {
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	c, timeout, answered, leaveAfter := s.conn, s.timeout, s.answered, s.leaveAfter
	s.mu.Unlock()

	now := time.Now()
	deadline := answered.Add(timeout)
	if !now.Before(deadline) {
		s.end(fmt.Errorf("%w: no server has answered for %s", ErrSessionLost, timeout))
		return
	}
	replyLimit := max(timeout*2/3, time.Second)
	if leaveAfter > 0 && c.hasAnswered() {
		replyLimit = leaveAfter
	}
	due := now.Add(replyLimit)
	if oldest := c.oldest(); !oldest.IsZero() {
		due = oldest.Add(replyLimit)
		if !now.Before(due) {
			s.log.log(slog.LevelWarn, "zookeeper does not answer: reconnecting",
				"server", c.to.server.String(), "after", replyLimit)
			c.Close()
			due = now.Add(replyLimit)
		}
	}
	if deadline.Before(due) {
		due = deadline
	}
	if leaveAfter > 0 && due.After(now.Add(leaveAfter)) { // the next answer may be the first of a connection
		due = now.Add(leaveAfter)
	}
	s.watchTimer.Reset(due.Sub(now))
}
