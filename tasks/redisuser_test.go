package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"muster/dev/redisserver"
	"muster/resource/queue"
)

// TestTheUserOfTheDocs: the user that docs/queues.md shows may do what a queue needs, and nothing outside its keys.
func TestTheUserOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^user (muster on >)PASSWORD (.*)$`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("docs/queues.md shows no user")
	}
	server, err := redisserver.Start(t.Context(), redisserver.Options{
		Extra: append([]string{"--user"}, strings.Fields(fmt.Sprintf("%ssecret %s", shown[1], shown[2]))...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	getenv := func(name string) string {
		host, _, _ := strings.Cut(server.Addr(), ":")
		return map[string]string{
			"MUSTER_REDIS_USERNAME": "muster", "MUSTER_REDIS_PASSWORD": "secret", "MUSTER_REDIS_HOSTS": host,
		}[name]
	}
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + server.Addr() })
	c := f.submitConfig("b")
	c.Redis.Getenv = getenv
	if _, err := Submit(t.Context(), f.s, c, numbered(100)); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithTimeout(t.Context(), limit)
	defer end()
	join := func(identity string, role queue.Role) *Process {
		c := f.config(identity, role)
		c.Redis.Getenv = getenv
		p, err := Join(ctx, dial(t), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Leave() })
		return p
	}
	e, w := join("e", queue.Executor), join("w", queue.Watcher)
	if err := e.Client().Set(ctx, "other", "x", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a key outside: %v", err)
	}
	go Execute(ctx, e, ExecutorConfig{Parallel: 2}, func(_ context.Context, task *Task) ([]byte, error) {
		return task.Payload, nil
	})
	err = Watch(ctx, w, func(context.Context, *Completed) error { end(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Unlink(t.Context(), f.look().Record, Access{Getenv: getenv}, nil); err != nil {
		t.Error(err)
	}
}

// TestTheUserMayLess: Redis refuses what a process does, at once or within a script. Waiting does not cure that, so
// executors and watchers end, and say why.
func TestTheUserMayLess(t *testing.T) {
	for _, refused := range []string{"-@scripting", "-hmget"} {
		t.Run(refused, func(t *testing.T) {
			server := startRedis(t, redisserver.Options{Extra: strings.Fields("--user muster on >secret ~* +@all")})
			f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + server.Addr() })
			join := func(identity string, role queue.Role) *Process {
				c := f.config(identity, role)
				c.Redis.Getenv = func(name string) string {
					return map[string]string{
						"MUSTER_REDIS_USERNAME": "muster", "MUSTER_REDIS_PASSWORD": "secret", "MUSTER_REDIS_HOSTS": "127.0.0.1",
					}[name]
				}
				p, err := Join(t.Context(), dial(t), c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.Leave() })
				return p
			}
			e, w := join("e", queue.Executor), join("w", queue.Watcher)
			if err := f.client().Do(t.Context(), "ACL", "SETUSER", "muster", refused).Err(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := Execute(ctx, e, ExecutorConfig{Parallel: 2}, square); !Denied(err) {
				t.Errorf("the executor ended with %v", err)
			}
			if err := Watch(ctx, w, func(context.Context, *Completed) error { return nil }); !Denied(err) {
				t.Errorf("the watcher ended with %v", err)
			}
		})
	}
}
