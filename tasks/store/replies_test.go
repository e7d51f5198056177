package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"muster/sim/rig"
)

// passed is how much of b a follower lets through that gets it in parts, and its error.
func passed(b []byte, part func() int) (n int, err error) {
	var r replies
	for n < len(b) {
		size := min(max(part(), 1), len(b)-n)
		if err := r.pass(b[n : n+size]); err != nil {
			return n, err
		}
		n += size
	}
	return n, nil
}

// FuzzReplies: what is let through is within the limits, and the sizes of the parts do not matter.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		"+OK\r\n", "-ERR x\r\n", ":-12\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "$3\r\na\r\n\r\n",
		"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
		"*0\r\n:1\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "*262145\r\n", "$99999999\r\n", "$-0\r\n",
		"%1\r\n", "*9223372036854775807\r\n*9223372036854775807\r\n", ":99999999999999999999\r\n", "\r\n", "+\n",
		"*200000\r\n*200000\r\n",
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		n, slow := passed(b, func() int { return 1 })
		_, fast := passed(b, func() int { return len(b) })
		_, some := passed(b, func() int { return random.IntN(10) })
		if (slow == nil) != (fast == nil) || (slow == nil) != (some == nil) {
			t.Fatalf("%q: byte by byte %v, at once %v, in parts %v", b, slow, fast, some)
		}
		if slow != nil && !errors.Is(slow, ErrReply) {
			t.Fatal(slow)
		}
		var m measured
		for rest := b[:n]; len(rest) > 0 && !m.ends; {
			rest = m.item(rest, 0)
		}
		if m.deepest > maxDepth || m.items > maxItems || m.largest > maxBulk || m.bytes > maxReply {
			t.Fatalf("%q passes: %+v", b[:n], m)
		}
	})
}

// measured is what the client library would make room for. It reads replies as that does: from lines and lengths.
type measured struct {
	deepest, items, largest, bytes int
	ends                           bool // the bytes ended within a reply
}

func (m *measured) item(b []byte, depth int) (rest []byte) {
	line, rest, whole := bytes.Cut(b, []byte("\r\n"))
	if !whole || len(line) == 0 {
		m.ends = true
		return nil
	}
	m.bytes += len(line) + 2
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 {
		return rest
	}
	switch line[0] {
	case '$':
		m.largest, m.bytes = max(m.largest, n), m.bytes+n
		if m.ends = len(rest) < n+2; m.ends {
			return nil
		}
		return rest[n+2:]
	case '*':
		m.items += n
		if n > 0 {
			m.deepest = max(m.deepest, depth+1)
		}
		for ; n > 0 && !m.ends && m.items <= maxItems && m.deepest <= maxDepth; n-- {
			rest = m.item(rest, depth+1)
		}
	}
	return rest
}

// reply makes a reply that a Redis could give, and its bytes.
func reply(random *rand.Rand, depth int) (value any, b []byte) {
	switch random.IntN(6) {
	case 0:
		n := random.Int64() - random.Int64()
		return n, fmt.Appendf(nil, ":%d\r\n", n)
	case 1:
		return nil, []byte("$-1\r\n")
	case 2:
		return "OK", []byte("+OK\r\n")
	case 3:
		text := strings.Repeat("a\r\n*5\r\n", random.IntN(200))
		return text, fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text)
	}
	if depth == maxDepth {
		return "", []byte("$0\r\n\r\n")
	}
	all := []any{}
	for range random.IntN(5) {
		v, part := reply(random, depth+1)
		all, b = append(all, v), append(b, part...)
	}
	return all, append(fmt.Appendf(nil, "*%d\r\n", len(all)), b...)
}

// TestSoundRepliesPass: the client library reads what a Redis said, in whatever parts it comes.
func TestSoundRepliesPass(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	said := make(chan any, 1)
	at := rig.Liar(t, server.Addr(), func(request []string) io.Reader {
		if request[0] != "any" {
			return strings.NewReader("-ERR unknown command\r\n")
		}
		value, b := reply(random, 0)
		said <- value
		return bytes.NewReader(b)
	})
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return soundly(inParts{c, rand.New(rand.NewPCG(3, 4))}), err
	}
	client := redis.NewClient(&redis.Options{Addr: at, Dialer: dial, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	defer client.Close()
	for range 500 {
		got, err := client.Do(t.Context(), "any").Result()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		if d := cmp.Diff(<-said, got); err != nil || d != "" {
			t.Fatalf("%v (-want +got):\n%s", err, d)
		}
	}
}

// inParts is a connection whose reads return less than there is.
type inParts struct {
	net.Conn
	random *rand.Rand
}

func (p inParts) Read(b []byte) (int, error) {
	return p.Conn.Read(b[:min(len(b), 1+p.random.IntN(50))])
}

// TestTheLargestReplies: what is as large as muster may ask for passes, and what is a little larger does not.
func TestTheLargestReplies(t *testing.T) {
	t.Parallel()
	large := func(n int) string { return "$" + strconv.Itoa(n) + "\r\n" + strings.Repeat("x", n) + "\r\n" }
	for name, c := range map[string]struct {
		reply  string
		passes bool
	}{
		"a bulk":                {large(maxBulk), true},
		"a larger one":          {"$" + strconv.Itoa(maxBulk+1) + "\r\n", false},
		"a page of one task":    {"*2\r\n" + large(MaxBytes-1) + large(maxBulk), true},
		"two large tasks":       {"*2\r\n" + large(maxBulk) + "$" + strconv.Itoa(maxBulk) + "\r\n", false},
		"as many items":         {"*" + strconv.Itoa(maxItems) + "\r\n" + strings.Repeat(":1\r\n", maxItems), true},
		"more in two arrays":    {"*2\r\n*" + strconv.Itoa(maxItems) + "\r\n", false},
		"as deep":               {strings.Repeat("*1\r\n", maxDepth) + ":1\r\n", true},
		"deeper":                {strings.Repeat("*1\r\n", maxDepth+1), false},
		"a line":                {"+" + strings.Repeat("x", maxLine-3) + "\r\n", true},
		"a longer line":         {"+" + strings.Repeat("x", maxLine), false},
		"replies without end":   {strings.Repeat("+"+strings.Repeat("x", maxLine-3)+"\r\n", maxReply/maxLine+1), false},
		"what asks for no room": {strings.Repeat("*0\r\n$-1\r\n$0\r\n\r\n", 1000), true},
	} {
		for _, size := range []int{4096, 32 << 10, 1 << 30} {
			if _, err := passed([]byte(c.reply), func() int { return size }); (err == nil) != c.passes {
				t.Errorf("%s, %d bytes at a time: %v", name, size, err)
			}
		}
	}
}

// TestARequestBeginsAnew: what was answered before does not count.
func TestARequestBeginsAnew(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer there.Close()
	c := soundly(here)
	defer c.Close()
	text := "$" + strconv.Itoa(maxBulk) + "\r\n" + strings.Repeat("x", maxBulk) + "\r\n"
	for range 3 {
		go func() { _, _ = io.WriteString(there, text) }()
		if n, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
			t.Fatal(n, err)
		}
		go func() { _, _ = io.ReadFull(there, make([]byte, 4)) }()
		if _, err := c.Write([]byte("next")); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkReplies measures what the checks of a turn of 100 tasks cost.
func BenchmarkReplies(b *testing.B) {
	turn := []byte("*4\r\n:0\r\n*0\r\n*1\r\n*4\r\n$1\r\nb\r\n:1\r\n:1\r\n*100\r\n" +
		strings.Repeat("$64\r\n"+strings.Repeat("x", 64)+"\r\n", 100) + ":0\r\n")
	var r replies
	b.ReportAllocs()
	for b.Loop() {
		if err := r.pass(turn); err != nil {
			b.Fatal(err)
		}
		r.bytes, r.items = 0, 0
	}
}
