package hostile_test

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/tasks"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// The znodes of the estate.
const (
	root = "/jobs"
	home = resource.DefaultHome
)

// stack is one of those who share the root.
type stack struct {
	name     string
	applied  []resource.Declaration // what the estate holds of it
	declared []resource.Declaration // what it declares now: some is new, gone or other
}

// estate is what all places hold: the picture, and what is in Redis.
type estate struct {
	picture picture
	stacks  []stack
	redis   map[string]string // dumps of the keys
	client  *redis.Client
	trap    *trap
	names   namer
	planted map[string]named // the bodies of the picture by path
}

// id is what ZooKeeper calls a user whose password is "secret".
func id(user string) string {
	sum := sha1.Sum([]byte(user + ":secret"))
	return "digest:" + user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// acl is that of examples/guarded: who applies may do everything, the workers of the stack all but change that, and
// everybody may look. The znodes that all stacks share are made by a stack without workers.
func (s stack) acl() []string {
	if s.name == base {
		return []string{id(ops) + ":cdrwa", "world:anyone:r"}
	}
	return []string{id(ops) + ":cdrwa", id(s.user()) + ":cdrw", "world:anyone:r"}
}

func (s stack) user() string { return "worker-" + s.name }

// base is the stack whose apply makes the folders that all share.
const base = "base"

// at is the path of a resource of the stack.
func (s stack) at(name string) string { return below(root, s.name+"-"+name) }

// aJob is a job of the stack.
func (s stack) aJob(name string, n int, edits ...func(*job.Job)) job.Job {
	j := job.Default()
	j.Root, j.Name, j.Workers, j.Address = root, s.name+"-"+name, n, "job."+name
	j.Timeouts.Stale = resource.Duration(time.Second)
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func retained(j *job.Job) { j.Lifecycle.OnComplete = job.Retain }

func labelled(j *job.Job) { j.Labels = map[string]string{"edition": "second"} }

func (s stack) aGroup() group.Group {
	g := group.Default()
	g.Root, g.Name, g.Address, g.Settle = root, s.name+"-group", "group.group", resource.Duration(time.Millisecond)
	cron := group.NewDuty(group.Cron, "report")
	cron.Schedule = "@every 1s"
	g.Add(cron)
	g.Add(group.NewDuty(group.Leader, "main"))
	g.Add(group.NewDuty(group.Leader, "spare"))
	return g
}

func (s stack) aQueue(name string) queue.Queue {
	q := queue.Default()
	q.Root, q.Name, q.Address, q.Redis = root, s.name+"-"+name, "queue."+name, "redis://"+rediss.Addr()+"/0"
	q.Timeouts.Stale = resource.Duration(time.Second)
	return q
}

// aStack declares something of each kind in each state.
func aStack(name string) stack {
	s := stack{name: name}
	same := []resource.Declaration{
		s.aJob("ready", 2), s.aJob("run", 2), s.aJob("idle", 1), s.aJob("lost", 2), s.aJob("over", 1),
		s.aGroup(), s.aQueue("queue"),
	}
	s.applied = append([]resource.Declaration{
		s.aJob("wider", 2), s.aJob("labels", 2), s.aJob("ended", 1, retained), s.aJob("gone", 2), s.aQueue("old"),
	}, same...)
	s.declared = append([]resource.Declaration{
		s.aJob("wider", 3), s.aJob("labels", 2, labelled), s.aJob("ended", 1, retained), s.aJob("new", 2),
	}, same...)
	return s
}

// kinds are those that muster has.
func kinds() []zkstate.Kind {
	all := []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()}
	all[2].Unlink = func(ctx context.Context, rec *resource.Record) error {
		access := tasks.Access{Getenv: func(string) string { return "" }}
		return tasks.Unlink(ctx, rec, access, []string{rediss.Addr()}) // the only one that queues here declare
	}
	return all
}

func (s stack) store(on *zkconn.Session) (*zkstate.Store, error) {
	return zkstate.NewStore(on, zkstate.Config{
		Home: home, Stack: s.name, By: "ann@desk", At: time.Now(), ACL: s.acl(), Kinds: kinds(),
	})
}

// trap is a server that takes every connection and never answers. Nobody may come to it.
type trap struct {
	addr  string
	came  chan struct{}
	close func() error
}

func setTrap() (*trap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &trap{l.Addr().String(), make(chan struct{}, 1), l.Close}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			select {
			case t.came <- struct{}{}:
			default:
			}
		}
	}()
	return t, nil
}

// sprung reports whether somebody has come since it was asked last.
func (t *trap) sprung() bool {
	select {
	case <-t.came:
		return true
	default:
		return false
	}
}

// dump reads every key.
func (e *estate) dump(ctx context.Context) (map[string]string, error) {
	keys, err := e.client.Keys(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	var answers []*redis.StringCmd
	_, err = e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			answers = append(answers, p.Dump(ctx, key))
		}
		return nil
	})
	for i, key := range keys {
		all[key] = answers[i].Val()
	}
	return all, err
}

// refill makes Redis hold what it held.
func (e *estate) refill(ctx context.Context, has map[string]string) error {
	_, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for key := range has {
			if _, kept := e.redis[key]; !kept {
				p.Del(ctx, key)
			}
		}
		for key, value := range e.redis {
			if has[key] != value {
				p.RestoreReplace(ctx, key, 0, value)
			}
		}
		return nil
	})
	return err
}

// is reports whether a declaration is of the stack.
func (s stack) is(at string) bool { return strings.HasPrefix(at, fmt.Sprintf("%s/%s-", root, s.name)) }

// close ends what the estate has started.
func (e *estate) close() {
	_ = e.trap.close()
	_ = e.client.Close()
}
