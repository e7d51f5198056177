package hostile_test

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/redisserver"
	"muster/dev/zkmodel"
	"muster/dev/zkserver"
	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
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

// The servers of all tests of this package.
var (
	servers *zkserver.Ensemble
	rediss  *redisserver.Server
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, rig.ZooKeeper(&servers, zkserver.Options{}), rig.Redis(&rediss, redisserver.Options{})))
}

// ops is the user who applies. A worker of a stack is the user "worker-" and its name.
const ops = "ops"

// place is a ZooKeeper that holds nothing but one estate at a time.
type place struct {
	name string
	dial func(ctx context.Context, user string) (*zkconn.Session, error)
	look func(ctx context.Context, s *zkconn.Session) (picture, error)
	done func() error
}

// session is how every place is dialled.
func session(user string, servers ...string) zkconn.Config {
	return zkconn.Config{
		Servers: servers, Timeout: time.Minute,
		Auth: []zkconn.Auth{{Scheme: "digest", Data: []byte(user + ":secret")}},
	}
}

// real is the ZooKeeper of the tests, emptied.
func real(ctx context.Context) (*place, error) {
	p := &place{
		name: "real",
		dial: func(ctx context.Context, user string) (*zkconn.Session, error) {
			return zkconn.Dial(ctx, session(user, servers.Addrs()...))
		},
		look: take,
		done: func() error { return nil },
	}
	return p, p.clear(ctx)
}

// model is a new ZooKeeper in memory.
func model(context.Context) (*place, error) {
	server := zkmodel.New(zkmodel.Options{})
	return &place{
		name: "model",
		dial: func(ctx context.Context, user string) (*zkconn.Session, error) {
			c := session(user, "192.0.2.1:2181")
			c.Dial = func(context.Context, string) (net.Conn, error) {
				ours, its := net.Pipe()
				go server.ServeConn(its)
				return ours, nil
			}
			return zkconn.Dial(ctx, c)
		},
		look: func(context.Context, *zkconn.Session) (pic picture, err error) {
			server.Do(func() {
				server.Walk(func(path string, data []byte, stat zkmodel.Stat) {
					pic = append(pic, node{path: path, data: data, czxid: stat.Czxid, owner: stat.EphemeralOwner})
				})
			})
			return pic, nil
		},
		done: server.Close,
	}, nil
}

// clear deletes every znode but ZooKeeper's own.
func (p *place) clear(ctx context.Context) error {
	s, err := p.dial(ctx, ops)
	if err != nil {
		return err
	}
	defer s.Close()
	pic, err := take(ctx, s)
	if err != nil {
		return err
	}
	slices.SortFunc(pic, func(a, b node) int { return len(b.path) - len(a.path) }) // children are longer
	for chunk := range slices.Chunk(pic, atOnce) {
		var deletes []zkconn.Op
		for _, n := range chunk {
			if n.owner == 0 {
				deletes = append(deletes, zkconn.DeleteOp(n.path, -1))
			} else if err := s.Delete(ctx, n.path, -1); err != nil && !errors.Is(err, zkconn.ErrNoNode) {
				return err // its session ends at this moment
			}
		}
		if len(deletes) == 0 {
			continue
		}
		if _, err := s.Multi(ctx, deletes...); err != nil {
			return err
		}
	}
	return nil
}

// below is path.Join for a parent that may be the root.
func below(parent, name string) string { return path.Join(parent, name) }

// build makes the estate with the code that real processes run, on the real servers, and takes its picture.
func build(ctx context.Context) (*estate, error) {
	e := &estate{stacks: []stack{aStack("etl"), aStack("ads")}, client: redis.NewClient(&redis.Options{
		Addr: rediss.Addr(), Protocol: 2,
	})}
	p, err := real(ctx)
	if err != nil {
		return nil, err
	}
	b := &builder{ctx: ctx, place: p}
	defer b.close()
	shared := stack{name: base}
	shared.applied = []resource.Declaration{shared.aJob("job", 1), shared.aGroup(), shared.aQueue("queue")}
	b.apply(shared)
	for _, s := range e.stacks {
		b.apply(s)
		b.jobs(s)
		b.group(s)
		b.queues(s)
	}
	if b.err == nil {
		e.picture, b.err = take(ctx, b.session(ops))
	}
	if b.err != nil {
		return nil, b.err
	}
	e.names, e.planted = namerOf(e.picture, namer{}), map[string]named{}
	for _, z := range e.picture {
		e.planted[z.path] = named{string(z.data), e.names.name(string(z.data))}
	}
	if e.redis, err = e.dump(ctx); err == nil {
		e.trap, err = setTrap()
	}
	return e, err
}

// builder keeps its first error.
type builder struct {
	ctx   context.Context
	place *place
	open  []func()
	err   error
}

func (b *builder) close() {
	for i := range b.open {
		b.open[len(b.open)-1-i]()
	}
}

func (b *builder) try(err error) {
	if b.err == nil {
		b.err = err
	}
}

// session is a new session of a user, until the estate is built.
func (b *builder) session(user string) *zkconn.Session {
	s, err := b.place.dial(b.ctx, user)
	b.try(err)
	if err == nil {
		b.open = append(b.open, func() { s.Close() })
	}
	return s
}

func (b *builder) apply(s stack) {
	on := b.session(ops)
	if b.err != nil {
		return
	}
	result := s.apply(b.ctx, on, s.applied)
	b.try(result.err)
	for _, o := range result.outcomes {
		b.try(o.Err)
	}
}

// jobs brings the jobs into their states.
func (b *builder) jobs(s stack) {
	join := func(name, identity string) *worker.Member {
		on := b.session(s.user())
		if b.err != nil {
			return nil
		}
		m, err := worker.Join(b.ctx, on, worker.Config{
			Root: root, Job: s.name + "-" + name, Identity: identity, Run: "monday",
			Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
		})
		b.try(err)
		return m
	}
	first, second := join("run", "w0"), join("run", "w1")
	lost, ended, over := join("lost", "w0"), join("ended", "w0"), join("over", "w0")
	if b.err != nil {
		return
	}
	_, err := second.Roll(b.ctx)
	b.try(err)
	b.try(first.Publish(b.ctx, "port", []byte("7001")))
	waiting, cancel := context.WithTimeout(b.ctx, time.Second)
	round := 1
	_ = first.Barrier(waiting, worker.Barrier{Name: "half", Round: &round}) // it has arrived, and goes on waiting
	cancel()
	b.try(lost.Leave(b.ctx, worker.End{}))
	b.try(ended.Complete(b.ctx, 0))
	b.completeOnly(s, over)
}

// completeOnly is the end of a last worker that died before it did what on_complete says.
func (b *builder) completeOnly(s stack, m *worker.Member) {
	on := b.session(s.user())
	acl, err := zkstate.ParseACL(s.acl())
	b.try(err)
	zero := 0
	body, err := znode.Encode(znode.Claim{Nonce: "n", Lives: 1, State: znode.Done, Exit: &zero})
	b.try(err)
	if b.err != nil {
		return
	}
	_, err = on.Multi(b.ctx, zkconn.SetOp(znode.ByIdentity(root, m.Generation, m.Identity), body, -1),
		zkconn.CreateOp(znode.NewEnd(root, m.Generation), nil, zkconn.PersistentSequential, acl),
		zkconn.DeleteOp(znode.Live(root, m.Job.Name, m.Identity), -1))
	b.try(err)
}

// group lets two members join. One leads, with a value and an open operation, and a cron has run.
func (b *builder) group(s stack) {
	for _, identity := range []string{"m0", "m1"} {
		on := b.session(s.user())
		if b.err != nil {
			return
		}
		m, err := member.Join(b.ctx, on, member.Config{
			Root: root, Group: s.name + "-group", Identity: identity, Version: "1.0", Address: "127.0.0.1:7000",
			Can: []string{"main", "report"},
		})
		b.try(err)
		if err != nil || identity != "m0" {
			continue
		}
		b.lead(m)
		b.try(ran(b.ctx, m))
	}
	_, err := member.SendAsk(b.ctx, b.session(ops), root, s.name+"-group",
		znode.Ask{Do: znode.AskPause, Duty: "spare", By: "ann@desk"})
	b.try(err)
}

func (b *builder) lead(m *member.Member) {
	hold, err := m.Take(b.ctx, "main")
	b.try(err)
	if err != nil {
		return
	}
	b.try(hold.Put(b.ctx, "offset", []byte("1000")))
	op, err := hold.Open(b.ctx, "checkpoint", "sha", false)
	b.try(err)
	if err != nil {
		return
	}
	step, err := op.Step(b.ctx, "freeze", nil)
	b.try(err)
	if err == nil {
		b.try(step.Finish(b.ctx, []byte("frozen")))
	}
}

// ran runs a cron once, and leaves it held.
func ran(ctx context.Context, m *member.Member) error {
	ran, failed := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		failed <- m.RunTicks(ctx, "report", func(context.Context, member.Run) member.Ended {
			ran <- struct{}{}
			return member.Ended{Result: ticks.Succeeded, Tail: []byte("done\n")}
		})
	}()
	for range 2 { // the first run is recorded when the second begins
		select {
		case <-ran:
		case err := <-failed:
			return errors.Join(errors.New("the cron ended"), err)
		}
	}
	return nil
}

// queues has a batch and an executor with a task in hand in one queue, and in another one only what they have left.
func (b *builder) queues(s stack) {
	access := tasks.Access{Getenv: func(string) string { return "" }}
	for _, name := range []string{"queue", "old"} {
		on := b.session(s.user())
		if b.err != nil {
			return
		}
		p, err := tasks.Join(b.ctx, on, tasks.Config{
			Root: root, Queue: s.name + "-" + name, Identity: "x0", Role: queue.Executor, Parallel: 1, Redis: access,
		})
		b.try(err)
		if err != nil {
			return
		}
		if name == "old" {
			b.try(p.Leave())
			continue
		}
		_, err = tasks.Submit(b.ctx, b.session(s.user()), tasks.SubmitConfig{
			Root: root, Queue: s.name + "-queue", ID: "batch", By: "ann@desk", Redis: access,
		}, tasks.Payloads([]byte("one"), []byte("two")))
		b.try(err)
		if err == nil {
			_, err = tasks.StartExecutor(p, tasks.ExecutorConfig{Parallel: 1}).Take(b.ctx)
			b.try(err)
		}
	}
}
