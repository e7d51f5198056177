package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// Liar is an address that stands for a Redis, and answers some requests itself: with what no Redis answers, if a test
// wants that. The others go to the Redis. It takes requests one by one, in RESP.
type Liar struct {
	listener net.Listener
	redis    string
	answer   func(request []string) io.Reader
	running  sync.WaitGroup
	closed   context.Context
	end      context.CancelFunc
}

// NewLiar listens on a free port of 127.0.0.1. answer returns what a request gets, also without an end; nil: what the
// Redis at this address says. It is called for many connections at a time. The caller closes the Liar.
func NewLiar(redis string, answer func(request []string) io.Reader) (*Liar, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	liar := &Liar{listener: l, redis: redis, answer: answer}
	liar.closed, liar.end = context.WithCancel(context.Background())
	liar.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			liar.running.Go(func() { liar.serve(c) })
		}
	})
	return liar, nil
}

// Addr is its host:port.
func (l *Liar) Addr() string { return l.listener.Addr().String() }

// Close cuts all connections and stops listening. It returns when all goroutines of the Liar have ended.
func (l *Liar) Close() error {
	err := l.listener.Close()
	l.end()
	l.running.Wait()
	return err
}

// closeAtEnd closes a connection when the Liar is closed. What it returns closes it before.
func (l *Liar) closeAtEnd(c net.Conn) (now func()) {
	stop := context.AfterFunc(l.closed, func() { _ = c.Close() })
	return func() {
		stop()
		_ = c.Close()
	}
}

// serve answers a connection until either side ends it.
func (l *Liar) serve(c net.Conn) {
	defer l.closeAtEnd(c)()
	truth, err := net.Dial("tcp", l.redis)
	if err == nil { // nobody listens at "": then all answers are lies
		defer l.closeAtEnd(truth)()
		l.running.Go(func() {
			defer c.Close()
			_, _ = io.Copy(c, truth)
		})
	}
	for in := bufio.NewReader(c); ; {
		raw, words, err := readRequest(in)
		if err != nil {
			return
		}
		switch lie := l.answer(words); {
		case lie != nil:
			_, err = io.Copy(c, lie)
		case truth != nil:
			_, err = truth.Write(raw)
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// readRequest reads an array of bulk strings.
func readRequest(in *bufio.Reader) (raw []byte, words []string, err error) {
	number := func(mark string) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		raw = append(raw, line...)
		digits, ok := strings.CutPrefix(line, mark)
		if !ok {
			return 0, errors.New("not a request")
		}
		return strconv.Atoi(strings.TrimSpace(digits))
	}
	n, err := number("*")
	for ; err == nil && n > 0; n-- {
		var size int
		if size, err = number("$"); err != nil {
			break
		}
		word := make([]byte, size+2)
		if _, err = io.ReadFull(in, word); err == nil {
			raw, words = append(raw, word...), append(words, string(word[:size]))
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("a request: %w", err)
	}
	return raw, words, nil
}
