package storemodel

import (
	"bytes"
	"crypto/sha1" // by which Redis names scripts
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/tasks/store/lua"
)

const version = "7.0.15"

// command executes one command. now is false if its reply comes later.
func (c *Client) command(words []string) (reply any, now bool) {
	if len(words) == 0 {
		return Refused("ERR no command"), true
	}
	args := words[1:]
	switch name := strings.ToLower(words[0]); {
	case name == "hello" && len(args) == 1 && args[0] == "2":
		return []any{
			"server", "redis", "version", version, "proto", int64(2), "id", c.id, "mode", "standalone", "role", "master",
			"modules", []any{},
		}, true
	case name == "client" && len(args) == 1 && strings.EqualFold(args[0], "id"):
		return c.id, true
	case name == "client" && len(args) == 2 && strings.EqualFold(args[0], "unblock"):
		return c.s.unblockClient(args[1]), true
	case name == "info":
		return info(), true
	case name == "eval" && len(args) > 2 && args[1] == "1":
		sha := hash(args[0])
		c.s.loaded[sha] = true
		return c.s.script(sha, args[2], args[3:]), true
	case name == "evalsha" && len(args) > 2 && args[1] == "1":
		return c.s.script(args[0], args[2], args[3:]), true
	case name == "blpop" && len(args) == 2:
		return c.pop(args[0], args[1])
	case name == "zrange" && len(args) == 7:
		return c.s.deadBatches(args), true
	case name == "hget" && len(args) == 2 && args[1] == "id":
		return c.s.queueID(args[0]), true
	case name == "scan" && len(args) == 5:
		return c.s.scan(args), true
	case name == "unlink":
		return c.s.unlink(args), true
	}
	return unknown(words), true
}

func unknown(words []string) Refused {
	return Refused(fmt.Sprintf("ERR the model does not know %.200q", words))
}

func (s *Server) script(sha, key string, args []string) any {
	if !s.loaded[sha] {
		return Refused("NOSCRIPT No matching script. Please use EVAL.")
	}
	name := s.names[sha]
	prefix, rest := splitKey(key)
	if name == "" || rest != "q" {
		return unknown([]string{"script " + sha, key})
	}
	q := s.queue(prefix)
	reply := q.Call(name, args)
	if s.o.Called != nil {
		s.o.Called(q, name, args, reply)
	}
	return reply
}

func (c *Client) pop(list, seconds string) (reply any, now bool) {
	limit, err := strconv.ParseFloat(seconds, 64)
	if _, name := splitKey(list); err != nil || limit <= 0 || name != "wake:e" && name != "wake:w" {
		return unknown([]string{"blpop", list, seconds}), true
	}
	if c.s.token(list) {
		return []any{list, "1"}, true
	}
	c.list, c.until = list, c.s.o.Now().Add(time.Duration(limit*float64(time.Second)))
	c.s.blocked = append(c.s.blocked, c)
	return nil, false
}

// unblockClient ends the block of a client, as if its time were over.
func (s *Server) unblockClient(id string) any {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return unknown([]string{"client", "unblock", id})
	}
	c := s.clients[n]
	if c == nil || c.list == "" {
		return int64(0)
	}
	c.unblock(nil)
	return int64(1)
}

// deadBatches reads the index of batches with dead tasks: key -inf (<ms> byscore limit 0 <n>.
func (s *Server) deadBatches(args []string) any {
	prefix, name := splitKey(args[0])
	var before float64
	var n int
	how := strings.ToLower(strings.Join(args[1:], " "))
	if read, _ := fmt.Sscanf(how, "-inf (%g byscore limit 0 %d", &before, &n); name != "dead" || read != 2 || n < 0 {
		return unknown(append([]string{"zrange"}, args...))
	}
	return s.queue(prefix).deadBefore(before, n)
}

// queueID is whose queue has a key "q"; nil if there is none.
func (s *Server) queueID(key string) any {
	prefix, name := splitKey(key)
	if q := s.queues[prefix]; name == "q" && q != nil && q.id != "" {
		return q.id
	}
	return nil
}

// scan lists the keys of a queue, all at once: 0 MATCH <prefix>* COUNT <n>.
func (s *Server) scan(args []string) any {
	prefix, star := strings.CutSuffix(args[2], "*")
	if args[0] != "0" || !strings.EqualFold(args[1], "match") || !star || s.queues[prefix] == nil {
		return []any{"0", []any{}}
	}
	keys := []any{}
	for _, key := range s.keys(prefix) {
		keys = append(keys, key)
	}
	return []any{"0", keys}
}

func (s *Server) keys(prefix string) []string {
	all := sortedKeys(s.queue(prefix).Keys())
	for i := range all {
		all[i] = prefix + all[i]
	}
	return all
}

// unlink deletes all keys of queues.
func (s *Server) unlink(keys []string) any {
	gone := 0
	for _, prefix := range sortedKeys(s.queues) {
		all := s.keys(prefix)
		left := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return slices.Contains(keys, key) })
		switch {
		case len(left) == 0:
			gone += len(all)
			delete(s.queues, prefix)
		case len(left) < len(all):
			return unknown([]string{"unlink", "a part of the queue " + prefix})
		}
	}
	return int64(gone)
}

func info() string {
	return strings.Join([]string{
		"# Server", "redis_version:" + version, "", "# Memory", "maxmemory_policy:noeviction", "",
		"# Replication", "role:master", "",
	}, crlf)
}

// Options say how a Server is.
type Options struct {
	Scripts map[string]string // the texts of the scripts by their names; nil: those of package lua
	Now     func() time.Time  // nil is time.Now
	// Called, unless nil, is called after each script that ran, in order. It must not call the Server.
	Called func(q *Queue, script string, args []string, reply any)
}

// Server is a Redis in memory that holds queues only. Its caller owns the connections, and each message.
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

// Handle executes one request. It does nothing for a client that is lost.
func (c *Client) Handle(words []string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.clients[c.id] != c {
		return
	}
	reply, now := c.command(words)
	for _, blocked := range slices.Clone(c.s.blocked) {
		if c.s.token(blocked.list) {
			blocked.unblock([]any{blocked.list, "1"})
		}
	}
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

func (s *Server) queue(prefix string) *Queue {
	q := s.queues[prefix]
	if q == nil {
		q = New()
		s.queues[prefix] = q
	}
	q.Now = float64(s.o.Now().UnixMilli())
	return q
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

// Requests are the requests of a client, in whole: their bytes, and their words. They end with what in has, or with
// what is no request.
func Requests(in io.Reader) iter.Seq2[[]byte, []string] {
	return func(yield func(raw []byte, words []string) bool) {
		var pending []byte
		for buf := make([]byte, 1<<16); ; {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			for pending = append(pending, buf[:n]...); len(pending) > 0; pending = pending[n:] {
				var words []string
				if words, n, err = Request(pending); n == 0 {
					break
				}
				if !yield(pending[:n], words) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// Request reads the first whole request in b, an array of bulk strings: its words, and its length in bytes; 0: it has
// not come in whole. An error says that b is no request.
func Request(b []byte) (words []string, n int, err error) {
	count, at, err := length(b, 0, '*')
	for ; err == nil && at > 0 && count > 0; count-- {
		var size int
		if size, at, err = length(b, at, '$'); at > 0 {
			end := at + size
			if at = end + len(crlf); at > len(b) {
				return nil, 0, nil
			}
			words = append(words, string(b[end-size:end]))
		}
	}
	return words, at, err
}

const crlf = "\r\n"

// length reads a number after a mark, and where what follows begins; 0: it has not come in whole.
func length(b []byte, at int, mark byte) (n, next int, err error) {
	end := bytes.Index(b[at:], []byte(crlf))
	if end < 0 {
		return 0, 0, nil
	}
	line := b[at : at+end]
	if len(line) == 0 || line[0] != mark {
		return 0, 0, fmt.Errorf("not RESP: %q where %q is expected", line, mark)
	}
	if n, err = strconv.Atoi(string(line[1:])); err != nil || n < 0 {
		return 0, 0, fmt.Errorf("not RESP: %q", line)
	}
	return n, at + end + len(crlf), nil
}

// encode appends a reply: int64, string, []any, Refused, or nil, which is the array that is not there.
func encode(to []byte, reply any) []byte {
	switch v := reply.(type) {
	case int64:
		return fmt.Appendf(to, ":%d\r\n", v)
	case string:
		return fmt.Appendf(to, "$%d\r\n%s\r\n", len(v), v)
	case Refused:
		return fmt.Appendf(to, "-%s\r\n", strings.NewReplacer("\r", " ", "\n", " ").Replace(string(v)))
	case []any:
		to = fmt.Appendf(to, "*%d\r\n", len(v))
		for _, item := range v {
			to = encode(to, item)
		}
		return to
	case nil:
		return append(to, "*-1\r\n"...)
	}
	panic(fmt.Sprintf("a reply of type %T", reply))
}
