package peers

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// asynq is the Go library: one process runs several handlers, and takes the next task with one of them.
func asynq(dir string) (side, error) {
	program := filepath.Join(dir, "asynq")
	if err := install(filepath.Join("testdata", "asynq"), "go", "build", "-o", program, "."); err != nil {
		return side{}, err
	}
	s := side{name: "asynq", tasks: 20_000}
	s.counts = lengths("asynq:{default}:pending", "asynq:{default}:completed")
	s.result = func(ctx context.Context, c *redis.Client) (string, error) {
		key, err := anyKey(ctx, c, "asynq:{default}:t:*")
		if err != nil {
			return "", err
		}
		return c.HGet(ctx, key, "result").Result()
	}
	return programs(s, []string{program}, 8), nil
}

// rq is Debian's python3-rq.
func rq(dir string) (side, error) {
	if err := install(dir, debiansPython, "-c", "import rq"); err != nil {
		return side{}, fmt.Errorf("%w (apt-get install python3-rq)", err)
	}
	s := side{name: "rq", tasks: 1_000}
	s.counts = lengths("rq:queue:peers", "rq:finished:peers")
	s.result = func(ctx context.Context, c *redis.Client) (string, error) {
		key, err := anyKey(ctx, c, "rq:results:*")
		if err != nil {
			return "", err
		}
		entries, err := c.XRange(ctx, key, "-", "+").Result()
		if err != nil || len(entries) != 1 {
			return "", fmt.Errorf("%d results of a task: %w", len(entries), err)
		}
		pickled, err := base64.StdEncoding.DecodeString(fmt.Sprint(entries[0].Values["return_value"]))
		return string(pickled), err
	}
	return programs(s, []string{debiansPython, "-B", "-W", "ignore", "testdata/python/rq_peer.py"}, 1), nil
}

// celery is Debian's python3-celery. Its results are in database 1.
func celery(dir string) (side, error) {
	if err := install(dir, debiansPython, "-c", "import celery"); err != nil {
		return side{}, fmt.Errorf("%w (apt-get install python3-celery)", err)
	}
	s := side{name: "celery", tasks: 2_000}
	s.counts = func(ctx context.Context, c *redis.Client, n int) (int64, int64, error) {
		left, err := c.LLen(ctx, "celery").Result()
		if err != nil {
			return 0, 0, err
		}
		all, err := c.InfoMap(ctx, "keyspace").Result()
		if err != nil {
			return 0, 0, err
		}
		var done int64
		if results, ok := all["Keyspace"]["db1"]; ok {
			_, err = fmt.Sscanf(results, "keys=%d,", &done)
		}
		return int64(n) - left, done, err
	}
	s.result = func(ctx context.Context, c *redis.Client) (string, error) {
		o := *c.Options()
		o.DB = 1
		results := redis.NewClient(&o)
		defer results.Close()
		key, err := anyKey(ctx, results, "celery-task-meta-*")
		if err != nil {
			return "", err
		}
		return results.Get(ctx, key).Result()
	}
	return programs(s, []string{debiansPython, "-B", "-W", "ignore", "testdata/python/celery_peer.py"}, 1), nil
}

// bullmq is the Node library from npm, in a copy of its directory.
func bullmq(dir string) (side, error) {
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "bullmq"))); err != nil {
		return side{}, err
	}
	err := install(dir, "npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
	if err != nil {
		return side{}, err
	}
	s := side{name: "bullmq", tasks: 10_000}
	s.counts = lengths("bull:peers:wait", "bull:peers:completed")
	s.result = func(ctx context.Context, c *redis.Client) (string, error) {
		return c.HGet(ctx, "bull:peers:1", "returnvalue").Result()
	}
	return programs(s, []string{"node", filepath.Join(dir, "bullmq.js")}, 10), nil
}

// debiansPython is the one that has Debian's modules.
const debiansPython = "/usr/bin/python3"

// install runs a command that prepares a side.
func install(dir string, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out[max(0, len(out)-1000):])
	}
	return nil
}

// lengths counts a list of waiting tasks, and a sorted set of finished ones.
func lengths(waiting, finished string) func(context.Context, *redis.Client, int) (int64, int64, error) {
	return func(ctx context.Context, c *redis.Client, n int) (int64, int64, error) {
		var left, done *redis.IntCmd
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			left, done = p.LLen(ctx, waiting), p.ZCard(ctx, finished)
			return nil
		})
		return int64(n) - left.Val(), done.Val(), err
	}
}

// anyKey is some key that fits a pattern.
func anyKey(ctx context.Context, c *redis.Client, pattern string) (string, error) {
	keys := c.Scan(ctx, 0, pattern, 1000).Iterator()
	if !keys.Next(ctx) {
		return "", fmt.Errorf("no key %s: %w", pattern, keys.Err())
	}
	return keys.Val(), nil
}
