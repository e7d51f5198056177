package tasks

import (
	"context"
	"fmt"
	"strings"

	"muster/queue"
	"muster/resource"
)

// unlinkPage is how many keys are looked at, or deleted, at once.
const unlinkPage = 1000

// Unlink deletes everything that a generation of a queue has in Redis: all keys that begin with its prefix. rec is its
// Record. Nobody may work in that generation any more. It may be called again after any error.
func Unlink(ctx context.Context, rec *resource.Record, redis Access) error {
	q := queue.Of(rec)
	client, err := redis.connect(ctx, q)
	if err != nil {
		return err
	}
	defer client.Close()
	glob := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(keyPrefix(rec.Generation)) + "*"
	for cursor := uint64(0); ; {
		var page []string
		if page, cursor, err = client.Scan(ctx, cursor, glob, unlinkPage).Result(); err != nil {
			return fmt.Errorf("redis: scan: %w", err)
		}
		if len(page) > 0 {
			if err := client.Unlink(ctx, page...).Err(); err != nil {
				return fmt.Errorf("redis: unlink: %w", err)
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// keyPrefix is that of all keys of a generation.
func keyPrefix(generation string) string { return "muster:{" + generation + "}:" }
