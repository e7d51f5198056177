package zkconn

import (
	"fmt"
	"log/slog"
	"time"
)

// granted is called when a server has attached the connection to our session; sent is when it was asked to.
func (s *Session) granted(c *conn, id int64, timeout time.Duration, sent time.Time) {
	s.hosts.note(c.server, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 {
		s.id = id
	}
	s.timeout = timeout
	s.answered = sent
}

// beat is called when a request has been answered.
func (s *Session) beat(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.at.After(s.answered) {
		s.answered = r.at
	}
	s.told = s.told || r.op == opClose
}

// watchdog ends the session at its own deadline: when the timeout has passed since the last answered request was sent,
// the server may have given the session's ephemeral znodes to somebody else, whether or not we can hear it say so. It
// also hangs up on a server that answers pings but not a request. It runs itself again when either can next be due.
func (s *Session) watchdog() {
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	c, timeout, answered := s.conn, s.timeout, s.answered
	s.mu.Unlock()

	now := time.Now()
	deadline := answered.Add(timeout)
	if !now.Before(deadline) {
		s.end(fmt.Errorf("%w: no server has answered for %s", ErrSessionLost, timeout))
		return
	}
	patience := max(timeout*2/3, time.Second)
	due := now.Add(patience)
	if oldest := c.oldest(); !oldest.IsZero() {
		due = oldest.Add(patience)
		if !now.Before(due) {
			s.log.log(slog.LevelWarn, "zookeeper does not answer: reconnecting", "server", c.server.String(), "after", patience)
			if c.stuck() {
				s.watches.forget()
			}
			c.Close()
			due = now.Add(patience)
		}
	}
	if deadline.Before(due) {
		due = deadline
	}
	time.AfterFunc(due.Sub(now), s.watchdog)
}
