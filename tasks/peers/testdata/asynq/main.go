// Program asynq is the Go library asynq as a side of the comparison in package peers: "submit N" puts N tasks into the
// queue, "work C" runs C handlers at once in this process.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis := asynq.RedisClientOpt{Addr: os.Getenv("PEERS_REDIS")}
	n, err := strconv.Atoi(os.Args[2])
	if err == nil && os.Args[1] == "submit" {
		err = submit(redis, n)
	} else if err == nil {
		err = work(redis, n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func submit(redis asynq.RedisClientOpt, n int) error {
	client := asynq.NewClient(redis)
	defer client.Close()
	for i := range n {
		task := asynq.NewTask("t", fmt.Appendf(nil, "%064d", i))
		if _, err := client.Enqueue(task, asynq.Retention(time.Hour)); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return nil
}

func work(redis asynq.RedisClientOpt, parallel int) error {
	server := asynq.NewServer(redis, asynq.Config{Concurrency: parallel, LogLevel: asynq.FatalLevel})
	if err := server.Ping(); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil { // the start
		return err
	}
	result := []byte("resulted")
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		_, err := t.ResultWriter().Write(result)
		return err
	}))
	in.ReadString('\n') // the end
	return err
}
