package storemodel

import (
	"bufio"
	"crypto/sha1" // by which Redis names scripts
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/tasks/store/lua"
)

// Options say how a Server is.
type Options struct {
	Scripts map[string]string // the texts of the scripts by their names; nil: those of package lua
	Now     func() time.Time  // nil is time.Now
	// Called, unless nil, is called after each script that ran, in order. It must not call the Server.
	Called func(q *Queue, script string, args []string, reply any)
}

// Server is a Redis in memory that holds queues only. It answers connections of its own (ServeConn), or those of a
// scheduler, which owns each message (Open).
type Server struct {
	o Options

	names map[string]string // of the scripts, by the SHA1 of their texts

	mu      sync.Mutex
	queues  map[string]*Queue // by the prefix of their keys
	loaded  map[string]bool   // the scripts that EVAL has brought, by their SHA1
	clients map[int64]*Client
	last    int64     // id of a client
	blocked []*Client // in the order in which they came
}

// NewServer is a Server without a key.
func NewServer(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, queues: map[string]*Queue{}, loaded: map[string]bool{}, clients: map[int64]*Client{}}
	if s.names = namesOf(o.Scripts); o.Scripts == nil {
		s.names = standard()
	}
	return s
}

// standard are the names of the scripts of package lua.
var standard = sync.OnceValue(func() map[string]string { return namesOf(lua.Scripts(lua.Clock())) })

// namesOf are the names of scripts, by which EVALSHA knows them.
func namesOf(scripts map[string]string) map[string]string {
	names := map[string]string{}
	for name, text := range scripts {
		names[hash(text)] = name
	}
	return names
}

func hash(script string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(script))) }

// Script is the name of the script whose text has this SHA1; "" if there is none.
func (s *Server) Script(sha string) string { return s.names[sha] }

// Client is a connection.
type Client struct {
	s     *Server
	id    int64
	out   func(reply []byte)
	list  string    // on which it is blocked; "": it is not
	until time.Time // when the block ends
}

// Open is a new connection. out gets each reply, in order; it must not call the Server.
func (s *Server) Open(out func(reply []byte)) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	c := &Client{s: s, id: s.last, out: out}
	s.clients[c.id] = c
	return c
}

// Handle executes one whole request. It does nothing for a client that is lost.
func (c *Client) Handle(request []byte) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.clients[c.id] != c {
		return
	}
	reply, now := c.command(Words(request))
	c.s.wakeBlocked()
	if now {
		c.out(encode(nil, reply))
	}
}

// Lost says that the connection is gone.
func (c *Client) Lost() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.release()
	delete(c.s.clients, c.id)
}

// Look calls f with the queue of a generation, as it is now. f must not keep it, nor call the Server.
func (s *Server) Look(generation string, f func(q *Queue)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.queue("muster:{" + generation + "}:"))
}

// Restart forgets all connections and scripts, as a Redis does that was killed. Its keys are then those of a Saved, or
// nil: as they are.
func (s *Server) Restart(keys Saved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.release()
	}
	s.clients, s.loaded = map[int64]*Client{}, map[string]bool{}
	if keys != nil {
		s.queues = keys.clone()
	}
}

// Saved is the keys of a Server at a time.
type Saved map[string]*Queue

// Save copies the keys.
func (s *Server) Save() Saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Saved(s.queues).clone()
}

// queue is the one whose keys have a prefix.
func (s *Server) queue(prefix string) *Queue {
	q := s.queues[prefix]
	if q == nil {
		q = New()
		s.queues[prefix] = q
	}
	q.Now = float64(s.o.Now().UnixMilli())
	return q
}

// block makes the client wait for a token, for a while.
func (c *Client) block(list string, d time.Duration) {
	c.list, c.until = list, c.s.o.Now().Add(d)
	c.s.blocked = append(c.s.blocked, c)
}

// Due ends the blocks whose time is over, and returns when the next one will be; zero: nobody is blocked.
func (s *Server) Due(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.blocked) {
		if !c.until.After(now) {
			c.unblock(nil)
		} else if next.IsZero() || c.until.Before(next) {
			next = c.until
		}
	}
	return next
}

// release ends a block without an answer.
func (c *Client) release() {
	if c.list == "" {
		return
	}
	c.list = ""
	c.s.blocked = slices.DeleteFunc(c.s.blocked, func(b *Client) bool { return b == c })
}

// unblock ends a block with an answer.
func (c *Client) unblock(reply any) {
	c.release()
	c.out(encode(nil, reply))
}

// wakeBlocked gives tokens to those who wait.
func (s *Server) wakeBlocked() {
	for _, c := range slices.Clone(s.blocked) {
		if s.token(c.list) {
			c.unblock([]any{c.list, "1"})
		}
	}
}

// token takes the token of a list, if there is one.
func (s *Server) token(list string) bool {
	prefix, name := splitKey(list)
	q := s.queue(prefix)
	token := &q.wakeE
	if name == "wake:w" {
		token = &q.wakeW
	}
	there := *token
	*token = false
	return there
}

// splitKey is the prefix of a queue's keys, and the rest of a key.
func splitKey(key string) (prefix, name string) {
	prefix, name, _ = strings.Cut(key, "}:")
	return prefix + "}:", name
}

// endLater ends the block of a client for which no scheduler does.
func (c *Client) endLater() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.list != "" {
		time.AfterFunc(c.until.Sub(c.s.o.Now()), func() { c.s.Due(c.s.o.Now()) })
	}
}

// ServeConn answers a connection until it ends.
func (s *Server) ServeConn(conn net.Conn) error {
	defer conn.Close()
	replies := make(chan []byte, 1<<10)
	defer close(replies)
	go func() {
		for r := range replies {
			if _, err := conn.Write(r); err != nil {
				conn.Close()
			}
		}
	}()
	c := s.Open(func(reply []byte) { replies <- reply })
	defer c.Lost()
	in, pending := bufio.NewReader(conn), []byte{}
	for buf := make([]byte, 1<<16); ; {
		n, err := in.Read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for pending = append(pending, buf[:n]...); len(pending) > 0; {
			n, err := Frame(pending)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			c.Handle(pending[:n])
			c.endLater()
			pending = pending[n:]
		}
	}
}
