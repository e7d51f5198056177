package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	floorHand    = 100 // tasks in a pipeline
	floorWaiting = "waiting"
	floorResults = "results"
)

// floor is what any queue in Redis has to do at least: move a task from the waiting ones to one's own, and store its
// result. It forgets what a process held that died.
func floor() side {
	s := side{name: "floor", tasks: 400_000}
	s.counts = func(ctx context.Context, c *redis.Client, n int) (int64, int64, error) {
		left, err := c.LLen(ctx, floorWaiting).Result()
		if err != nil {
			return 0, 0, err
		}
		done, err := c.HLen(ctx, floorResults).Result()
		return int64(n) - left, done, err
	}
	s.result = func(ctx context.Context, c *redis.Client) (string, error) {
		return c.HGet(ctx, floorResults, "0").Result()
	}
	return programs(s, self("floor"), 1)
}

// floorMain is the floor's program.
func floorMain(args []string) error {
	c := redis.NewClient(&redis.Options{Addr: os.Getenv("PEERS_REDIS"), MaxRetries: -1})
	defer c.Close()
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if args[0] == "submit" {
		return floorSubmit(c, n)
	}
	return floorWork(c)
}

func floorSubmit(c *redis.Client, n int) error {
	for i := 0; i < n; i += floorHand {
		var some []any
		for j := i; j < min(n, i+floorHand); j++ {
			some = append(some, payload(j))
		}
		if err := c.RPush(context.Background(), floorWaiting, some...).Err(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return nil
}

// floorWork takes as many tasks as it can in one pipeline, which also stores the results of those it took before.
func floorWork(c *redis.Client) error {
	ctx := context.Background()
	if err := c.Ping(ctx).Err(); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	hand := fmt.Sprint("hand", os.Getpid())
	var held []string
	for {
		taken := make([]*redis.StringCmd, floorHand)
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range taken {
				taken[i] = p.LMove(ctx, floorWaiting, hand, "LEFT", "RIGHT")
			}
			for _, task := range held {
				p.HSet(ctx, floorResults, number(task), result)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		held = held[:0]
		for _, t := range taken {
			if t.Err() == nil {
				held = append(held, t.Val())
			}
		}
		if len(held) == 0 {
			return nil
		}
	}
}

// payload is a task's bytes.
func payload(i int) string { return fmt.Sprintf("%0*d", taskBytes, i) }

// number is a payload's task, as a field of the results.
func number(payload string) string {
	if n := strings.TrimLeft(payload, "0"); n != "" {
		return n
	}
	return "0"
}
