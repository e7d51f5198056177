package zkconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// CloseLost closes another session, which has ended without a server's word, such as at its own deadline. The servers
// would keep its ephemeral znodes for its timeout from when they are back. Whoever calls this has ended all that relies
// on these znodes, since others may begin when they are gone. After nil they are gone. It makes a connection of its own
// to the server of s, and gives up after half of the timeout of s.
func (s *Session) CloseLost(ctx context.Context, lost *Session) error {
	_ = lost.Close() // it makes no connection any more
	lost.mu.Lock()
	id, timeout, secret, gone := lost.id, lost.timeout, lost.secret, lost.closeConfirmed
	lost.mu.Unlock()
	if gone {
		return nil
	}
	s.mu.Lock()
	to := s.conn.to
	s.mu.Unlock()
	c, err := s.connect(to)
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		_ = c.SetDeadline(time.Now().Add(s.handshakeLimit()))
		err = closeAs(c, id, timeout.Milliseconds(), secret)
	}
	if err != nil {
		return fmt.Errorf("session %#x: its ephemeral znodes stay for up to %s: %s", id, timeout, s.reason(err))
	}
	return nil
}

// closeAs takes a session over on a connection, and closes it.
func closeAs(c io.ReadWriter, id, timeout int64, secret string) error {
	hello := make([]byte, 4+8, 44) // protocol version, last zxid
	hello = binary.BigEndian.AppendUint32(hello, uint32(timeout))
	hello = binary.BigEndian.AppendUint64(hello, uint64(id))
	hello = binary.BigEndian.AppendUint32(hello, uint32(len(secret)))
	granted, err := ask(c, append(hello, secret...))
	if err != nil {
		return err
	}
	switch int64(binary.BigEndian.Uint64(granted[8:])) {
	case 0: // the server has ended it
		return nil
	case id:
		closing := int32(opClose)
		_, err = ask(c, binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, uint32(closing)))
		return err
	}
	return errors.New("the server answers with another session")
}

// ask sends a frame, and returns the next one without its length.
func ask(c io.ReadWriter, body []byte) ([]byte, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if length < replyHeader || length > 64 {
		return nil, errNotZooKeeper
	}
	reply := make([]byte, length)
	_, err := io.ReadFull(c, reply)
	return reply, err
}
