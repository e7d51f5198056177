package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
)

// unlinkPage is how many places for keys are looked at, or keys deleted, at once; unlinkPages is how often. A Redis
// with more keys than that is too large to be searched, or is none.
const (
	unlinkPage  = 1000
	unlinkPages = 100_000
)

// Unlink deletes everything that a generation of a queue has in Redis: all keys that begin with its prefix. rec is the
// copy of its Record. Nobody may work in that generation any more. It may be called again after any error, and ends
// with ctx.
//
// Those who worked in the generation may have written that copy. So Unlink connects only to hosts, as host:port, or to
// those that MUSTER_REDIS_HOSTS names, and deletes nothing if Redis says that the keys are of another queue.
func Unlink(ctx context.Context, rec *resource.Record, access Access, hosts []string) error {
	q := queue.Of(rec)
	c, err := access.config(q)
	if err != nil {
		return err
	}
	at, err := queue.ParseRedis(q.Redis)
	if err != nil {
		return err
	}
	for _, host := range at.Hosts {
		if !slices.Contains(hosts, host) && !c.Hosts.Include(host) {
			return fmt.Errorf("no queue that is declared uses the redis at %s; if keys may be deleted there, add it to %s "+
				"and apply again", host, queue.EnvHosts)
		}
	}
	client, err := store.Connect(ctx, c)
	if err == nil {
		defer client.Close()
		defer context.AfterFunc(ctx, func() { _ = client.Close() })() // a read does not end with ctx
		err = unlinkAll(ctx, client, q, keyPrefix(rec.Generation))
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("redis at %s: %w", strings.Join(at.Hosts, ","), context.Cause(ctx))
	}
	return err
}

// unlinkAll deletes the keys that begin with prefix, if they are those of q.
func unlinkAll(ctx context.Context, client *redis.Client, q queue.Queue, prefix string) error {
	id, err := client.HGet(ctx, prefix+"q", "id").Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil): // nil: it is deleted already, others may not be
		return fmt.Errorf("redis: %w", err)
	case err == nil && id != q.Path():
		return store.ErrOtherQueue
	}
	glob := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(prefix) + "*"
	var cursor uint64
	for range unlinkPages {
		var page []string
		if page, cursor, err = client.Scan(ctx, cursor, glob, unlinkPage).Result(); err != nil {
			return fmt.Errorf("redis: scan: %w", err)
		}
		page = slices.DeleteFunc(page, func(key string) bool { return !strings.HasPrefix(key, prefix) })
		if len(page) > 0 {
			if err := client.Unlink(ctx, page...).Err(); err != nil {
				return fmt.Errorf("redis: unlink: %w", err)
			}
		}
		if cursor == 0 {
			return nil
		}
	}
	return fmt.Errorf("redis: %d pages of keys, and there are more", unlinkPages)
}

// keyPrefix is that of all keys of a generation.
func keyPrefix(generation string) string { return "muster:{" + generation + "}:" }
