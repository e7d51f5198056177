package tasks

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/tasks/store"
)

// Access says how a process reaches the Redis of a queue. Programs use the zero value.
type Access struct {
	// Getenv reads the credentials, see store.FromEnvironment; nil is os.Getenv.
	Getenv func(string) string
	// Dial connects to an address; nil is TCP. A simulation connects to a model in memory.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// connect connects to the Redis of q. The caller closes the client.
func (a Access) connect(ctx context.Context, q queue.Queue) (*redis.Client, error) {
	c, err := a.config(q)
	if err != nil {
		return nil, err
	}
	return store.Connect(ctx, c)
}

// config says where the Redis of q is, and who this process is there.
func (a Access) config(q queue.Queue) (store.Config, error) {
	if a.Getenv == nil {
		a.Getenv = os.Getenv
	}
	c, err := store.FromEnvironment(q.Redis, a.Getenv)
	c.Dial = a.Dial
	return c, err
}

// open is the life of q in Redis that belongs to a generation.
func open(client *redis.Client, q queue.Queue, generation string) *store.Queue {
	return store.New(client, generation, q.Path())
}

// hopeless reports whether waiting does not cure an error of Redis.
func hopeless(err error) bool { return Denied(err) || Unfit(err) || errors.Is(err, store.ErrHost) }

// Unfit reports whether an error says that a Redis, or its address, is not one that the queue can use.
func Unfit(err error) bool {
	return err != nil && strings.Contains(err.Error(), "DB index is out of range") ||
		slices.ContainsFunc([]error{store.ErrServer, store.ErrURL, store.ErrOtherQueue, store.ErrFormat},
			func(e error) bool { return errors.Is(err, e) })
}

// Denied reports whether Redis refused the user or the password, or what that user wants to do.
func Denied(err error) bool {
	return redis.IsAuthError(err) || redis.IsPermissionError(err) || isReply(err) && deniedInScript(err.Error())
}

// deniedInScript knows what Redis 7.0, and newer ones, answer to a script that does what its user may not.
func deniedInScript(reply string) bool {
	return strings.Contains(reply, "The user executing the script can't") ||
		strings.Contains(reply, "ACL failure in script")
}

// refused reports whether a script refused a call: then it changed nothing.
func refused(err error) bool {
	var r *store.Refusal
	return errors.As(err, &r)
}

// isReply reports whether an error is an answer of Redis.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
