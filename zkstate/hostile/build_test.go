package hostile_test

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
