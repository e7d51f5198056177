package storemodel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// version is what the Server says that it is.
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
	case name == "blpop" && len(args) == 2 && isWake(args[0]):
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

// script runs a script on the queue with a key.
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

func isWake(key string) bool {
	_, name := splitKey(key)
	return name == "wake:e" || name == "wake:w"
}

// pop takes a token, or waits for one.
func (c *Client) pop(list, seconds string) (reply any, now bool) {
	limit, err := strconv.ParseFloat(seconds, 64)
	if err != nil || limit <= 0 {
		return unknown([]string{"blpop", list, seconds}), true
	}
	if c.s.token(list) {
		return []any{list, "1"}, true
	}
	c.block(list, time.Duration(limit*float64(time.Second)))
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
	before, err := strconv.ParseFloat(strings.TrimPrefix(args[2], "("), 64)
	n, bad := strconv.Atoi(args[6])
	how := strings.ToLower(strings.Join([]string{args[1], args[2][:1], args[3], args[4], args[5]}, " "))
	if name != "dead" || how != "-inf ( byscore limit 0" || err != nil || bad != nil || n < 0 {
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
	for _, key := range sortedKeys(s.queue(prefix).Keys()) {
		keys = append(keys, prefix+key)
	}
	return []any{"0", keys}
}

// unlink deletes all keys of queues.
func (s *Server) unlink(keys []string) any {
	gone := 0
	for _, prefix := range sortedKeys(s.queues) {
		all := sortedKeys(s.queue(prefix).Keys())
		for i := range all {
			all[i] = prefix + all[i]
		}
		if !slices.ContainsFunc(all, func(key string) bool { return slices.Contains(keys, key) }) {
			continue
		}
		for _, key := range all {
			if !slices.Contains(keys, key) {
				return unknown([]string{"unlink", "a part of the queue " + prefix})
			}
		}
		gone += len(all)
		delete(s.queues, prefix)
	}
	return int64(gone)
}

// info is what a process asks before it uses a Redis.
func info() string {
	return strings.Join([]string{
		"# Server", "redis_version:" + version, "", "# Memory", "maxmemory_policy:noeviction", "",
		"# Replication", "role:master", "",
	}, crlf)
}
