package cli_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/member"
	"muster/zkstate/zkconn"
)

// scriptMember is a member of a group in a script, with the duties that it has taken.
type scriptMember struct {
	member *member.Member
	holds  map[string]*member.Hold
	left   chan struct{} // closed when it has left because it was asked to stop
}

type membersKey struct{}

// cmdGroup is a member of a group, in the process of the test:
//
//	group join NAME PATH [DUTY...]    joins as NAME, and takes these duties; it leaves when it is asked to stop
//	group save NAME DUTY KEY=VALUE... saves state
//	group begin NAME DUTY OPERATION   leaves an operation open
//	group stopped NAME                waits until it has left because it was asked to
//	group removed NAME                waits until it is no member any more
//	group leave NAME
func cmdGroup(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: group join|save|begin|stopped|removed|leave NAME [ARGS]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all := ts.Value(membersKey{}).(map[string]*scriptMember)
	m := all[args[1]]
	switch {
	case args[0] == "join" && len(args) > 2:
		m, err := joinGroup(ctx, args[1], args[2], args[3:])
		ts.Check(err)
		all[args[1]] = m
		ts.Defer(func() { _ = m.member.Leave() })
	case m == nil:
		ts.Fatalf("nobody joined as %s", args[1])
	case args[0] == "save" && len(args) > 3:
		for _, pair := range args[3:] {
			key, value, _ := strings.Cut(pair, "=")
			ts.Check(m.holds[args[2]].Put(ctx, key, []byte(value)))
		}
	case args[0] == "begin" && len(args) == 4:
		_, err := m.holds[args[2]].Open(ctx, args[3], "script", false)
		ts.Check(err)
	case args[0] == "stopped":
		select {
		case <-m.left:
		case <-ctx.Done():
			ts.Fatalf("%s was not asked to stop", args[1])
		}
	case args[0] == "removed":
		select {
		case <-m.member.Context().Done():
		case <-ctx.Done():
			ts.Fatalf("%s is still a member", args[1])
		}
	case args[0] == "leave":
		ts.Check(m.member.Leave())
	default:
		ts.Fatalf("group %s is not known", args[0])
	}
}

// joinGroup joins the group at a path, in a session of its own, and takes duties.
func joinGroup(ctx context.Context, identity, at string, duties []string) (*scriptMember, error) {
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{scriptServer}, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	m, err := member.Join(ctx, s, member.Config{
		Root: path.Dir(at), Group: path.Base(at), Identity: identity, Version: "1.0.0", Can: duties,
		Address: "127.0.0.1:7000",
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	joined := &scriptMember{m, map[string]*member.Hold{}, make(chan struct{})}
	go func() {
		if m.StopRequested(m.Context()) == nil {
			_ = m.Leave()
			close(joined.left)
		}
	}()
	for _, duty := range duties {
		if joined.holds[duty], err = m.Take(ctx, duty); err != nil {
			return nil, errors.Join(err, m.Leave())
		}
	}
	return joined, nil
}
