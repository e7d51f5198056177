package zkconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// SASL logs in every connection of a session. Its methods may be called concurrently.
type SASL interface {
	// Begin prepares a login to a server, before it is dialled: host is its name in Config.Servers, addr the address
	// that the name has now. An error that is ErrAuthFailed will come again: the credentials are wrong. With another
	// one, such as that nobody issues tickets now, the next server is tried.
	Begin(ctx context.Context, host, addr string) (Login, error)
}

// Login is the client's side of the login of one connection.
type Login interface {
	// Next takes the server's token, which is nil if the server sends none, and at first. It returns the next token
	// for the server, which may be empty, or true when the login is complete.
	Next(token []byte) (answer []byte, done bool, err error)
	// Refused is called if the login failed, for good. It reports whether another one may not fail: it would be made
	// with something newer.
	Refused() (again bool)
}

const (
	opSASL   = 102
	maxToken = 64 << 10 // bytes, of a server

	codeAuthFailed   = -115
	codeDemandsLogin = -124
)

// ErrNoSASL is for a Login: it means that a server has gone on without a login, so that it would take us for nobody.
var ErrNoSASL = fmt.Errorf("%w: the server does not log in by SASL, or lets in who fails", ErrAuthFailed)

// errDemandsLogin is for a session without SASL.
var errDemandsLogin = fmt.Errorf("%w: the server demands a login by SASL", ErrAuthFailed)

// logIn logs in on a connection that has a session, before anything else is sent.
func logIn(on io.ReadWriter, login Login) error {
	err := exchange(on, login)
	if errors.Is(err, ErrAuthFailed) && login.Refused() {
		return errors.New(reasonOf(err)) // it is not for good
	}
	return err
}

// exchange is the login itself. Nothing else is under way, so that each frame is the answer to the one before. A
// request is xid, code and token, a reply is a header and perhaps a token. Tokens are a length (4 bytes; -1 is none)
// and that many bytes. No mechanism is named: the server has one.
func exchange(on io.ReadWriter, login Login) error {
	var token []byte
	for {
		answer, done, err := login.Next(token)
		if err != nil || done {
			return err
		}
		request := binary.BigEndian.AppendUint32(nil, uint32(requestHeader+4+len(answer)))
		request = append(request, 0, 0, 0, 0) // xid
		request = binary.BigEndian.AppendUint32(request, opSASL)
		request = binary.BigEndian.AppendUint32(request, uint32(len(answer)))
		if _, err := on.Write(append(request, answer...)); err != nil {
			return err
		}
		if token, err = readToken(on); err != nil {
			return err
		}
	}
}

func readToken(from io.Reader) ([]byte, error) {
	reply, err := readFrame(from, replyHeader, replyHeader+4+maxToken)
	if err != nil {
		return nil, err
	}
	switch code := int32(binary.BigEndian.Uint32(reply[16:])); code {
	case 0:
	case codeAuthFailed, codeDemandsLogin:
		return nil, fmt.Errorf("%w: the server refuses the login", ErrAuthFailed)
	default:
		return nil, fmt.Errorf("%w: server error %d at the login", ErrAuthFailed, code)
	}
	body := reply[4+replyHeader:]
	if len(body) == 0 {
		return nil, nil
	}
	if len(body) < 4 {
		return nil, errNotZooKeeper
	}
	length := int32(binary.BigEndian.Uint32(body))
	switch {
	case length == -1 && len(body) == 4:
		return nil, nil
	case int(length) == len(body)-4:
		return body[4:], nil
	}
	return nil, errNotZooKeeper
}

// beginLogin prepares a login; nil if the session has no SASL. Once there is a session, no server may cost it much
// time: the next one may need no new ticket.
func (s *Session) beginLogin(ctx context.Context, to endpoint) (Login, error) {
	if s.cfg.SASL == nil || to.err != nil {
		return nil, nil
	}
	s.hosts.setReason(to.server, "no login was ready yet")
	if s.ID() != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.handshakeLimit())
		defer cancel()
	}
	login, err := s.cfg.SASL.Begin(ctx, to.server.host, to.addr)
	if err == nil { // what follows has reasons of its own
		s.hosts.setReason(to.server, "")
	}
	return login, err
}

// logIn logs the connection in. A server may need as long as for the handshake, and again.
func (c *conn) logIn() error {
	if c.login == nil {
		return nil
	}
	c.session.hosts.setReason(c.to.server, "no answer to the login yet")
	c.readBy = time.Now().Add(c.session.handshakeLimit())
	if err := c.Conn.SetWriteDeadline(c.readBy); err != nil {
		return err
	}
	err := logIn(struct {
		io.Reader
		io.Writer
	}{c.in, c.Conn}, c.login)
	if hungUp(err) {
		return errors.New("hangs up at the login")
	}
	return err
}

// giveUp ends a session that nobody has granted, when all servers were tried and one has refused the login: another
// round would end like this one, and each try leaves a session behind until its timeout.
func (s *Session) giveUp(refusal error) {
	if !errors.Is(refusal, ErrAuthFailed) && !s.hosts.refused || s.ID() != 0 {
		return
	}
	s.hosts.refused = true
	if s.hosts.failures >= len(s.hosts.round) {
		s.end(s.hosts.allReasons(ErrAuthFailed))
	}
}

// reasonOf is the text of an error. It leaves out that the login failed, which is said once for all servers.
func reasonOf(err error) string { return strings.TrimPrefix(err.Error(), ErrAuthFailed.Error()+": ") }
