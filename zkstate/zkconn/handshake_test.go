package zkconn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

// forged changes one field of the answer to a handshake.
type forged func(frame []byte)

func granting(ms int32) forged {
	return func(frame []byte) { binary.BigEndian.PutUint32(frame[8:], uint32(ms)) }
}

// unfit are answers to a handshake that no ZooKeeper server gives.
func unfit() map[string]forged {
	return map[string]forged{
		"no timeout":         granting(0),
		"a negative timeout": granting(-4000),
		"an absurd timeout":  granting(1 << 30),
		"a short password":   func(frame []byte) { binary.BigEndian.PutUint32(frame[20:], 8) },
		"a long password":    func(frame []byte) { binary.BigEndian.PutUint32(frame[20:], 1<<30) },
		"no password":        func(frame []byte) { binary.BigEndian.PutUint32(frame[20:], 1<<32-1) },
	}
}

// TestAnotherSessionIsALostOne: a server answers a reconnection with a session that is not ours. Our ephemeral znodes
// are not there, so the session has ended, and no call is sent in the other.
func TestAnotherSessionIsALostOne(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]forged{
		"another id":       func(frame []byte) { frame[19]++ },
		"another password": func(frame []byte) { frame[39]++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, shared.Connect())
			p := proxy(t, r.Addr().String())
			s := dial(t, zkconn.Config{Servers: []string{p.Addr()}, Timeout: time.Minute})
			id := s.ID()
			r.set(func(r *relay) { r.forge = forge })
			p.Cut()
			closes(t, s.Context().Done(), 30*time.Second)
			err := context.Cause(s.Context())
			if !errors.Is(err, zkconn.ErrSessionLost) || !strings.Contains(err.Error(), "another session") {
				t.Error(err)
			}
			if _, _, err := s.Get(t.Context(), "/"); !errors.Is(err, zkconn.ErrSessionLost) {
				t.Error(err)
			}
			if s.ID() != id {
				t.Errorf("the session %#x became %#x", id, s.ID())
			}
		})
	}
}

// TestUnfitHandshake: what a server cannot have meant is a failure of this server. Dial says so, and a session that
// reconnects tries again.
func TestUnfitHandshake(t *testing.T) {
	t.Parallel()
	for name, forge := range unfit() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, shared.Connect())
			p := proxy(t, r.Addr().String())
			c := zkconn.Config{Servers: []string{p.Addr()}, Timeout: time.Minute}
			s := dial(t, c)
			r.set(func(r *relay) { r.forge = forge })
			_, err := zkconn.Dial(within(t, 2*time.Second), c)
			if !errors.Is(err, zkconn.ErrUnreachable) || !strings.Contains(err.Error(), "not like a ZooKeeper server") {
				t.Error(err)
			}
			refused := make(chan struct{})
			once := false
			r.set(func(r *relay) {
				r.forge = func(frame []byte) {
					if !once {
						forge(frame)
						once = true
						close(refused)
					}
				}
			})
			p.Cut()
			closes(t, refused, 30*time.Second)
			if err := s.Sync(within(t, 30*time.Second), "/"); err != nil {
				t.Error(err)
			}
			if s.Timeout() != time.Minute {
				t.Errorf("timeout %s", s.Timeout())
			}
		})
	}
}

// TestFirstReplyMeetsNoWatches: when the library has connected again, it reads the zxid of the last reply if it knows
// of watches, while it may receive the first reply. That is a race within it. It knows of none: conn sets them. Here a
// reply comes together with the answer to the handshake, and the race detector would tell.
func TestFirstReplyMeetsNoWatches(t *testing.T) {
	t.Parallel()
	ctx, dir := within(t, 30*time.Second), root(t)
	r := newRelay(t, shared.Connect())
	p := proxy(t, r.Addr().String())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}}), dial(t, zkconn.Config{})
	_, _, changed, err := s.GetW(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	reply := binary.BigEndian.AppendUint32(nil, 16)
	reply = binary.BigEndian.AppendUint32(reply, 1<<31-1) // to a request that nobody sent
	reply = binary.BigEndian.AppendUint64(reply, 1)       // the zxid
	reply = binary.BigEndian.AppendUint32(reply, 0)
	r.set(func(r *relay) { r.added = reply })
	for range 10 {
		p.Cut()
		if _, _, err := s.Get(ctx, dir); err != nil {
			t.Fatal(err)
		}
	}
	must(other.Set(ctx, dir, nil, 0))(t)
	closes(t, changed, 10*time.Second)
}
