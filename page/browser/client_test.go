package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// exchange sends bytes to the server, and returns the code and the begin of its answer.
func (s *server) exchange(request string) (answer string, err error) {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	_, _ = io.WriteString(conn, request) // the server may answer, and close, before it has read all
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // as much as there is
	return fmt.Sprintf("%d %s", resp.StatusCode, body), nil
}

// crowd is clients of a server that do something until they are stopped.
type crowd struct {
	running sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context

	streams atomic.Int64 // that were opened

	mu    sync.Mutex
	conns []net.Conn
	wrong []error
}

func newClients(t *testing.T) *crowd {
	c := &crowd{}
	c.ctx, c.stop = context.WithCancel(t.Context())
	t.Cleanup(c.leave)
	return c
}

// leave ends all clients and waits for them.
func (c *crowd) leave() {
	c.stop()
	c.mu.Lock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.running.Wait()
}

func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.wrong = append(c.wrong, err)
	}
}

// problems are what the clients met.
func (c *crowd) problems() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.wrong...)
}

// connect opens a connection with a small buffer, so that the server feels at once that nobody reads.
func (c *crowd) connect(s *server, request string) (net.Conn, error) {
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(c.ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, request)
	return conn, err
}

// slow reads a byte a second, or nothing, and returns when the server has dropped it.
func (c *crowd) slow(s *server, request string, reads bool) {
	conn, err := c.connect(s, request)
	if err != nil {
		c.fail(err)
		return
	}
	c.running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for one := make([]byte, 1); ; {
			select {
			case <-c.ctx.Done():
				return
			case <-tick.C:
			}
			if reads {
				_, err = conn.Read(one)
			} else {
				_, err = conn.Write([]byte{'\n'}) // an end of the connection shows here
			}
			if err != nil {
				return
			}
		}
	})
}

// reader is a page that is open: it reads everything. seen gets what the stream says.
func (c *crowd) reader(s *server, page string, seen func(event, data string)) {
	c.running.Go(func() {
		if err := c.read(s, page, seen); err != nil {
			c.fail(fmt.Errorf("the reader of %s: %w", page, err))
		}
	})
}

var dataVersion = regexp.MustCompile(`data-version="?(\d+)`)

func (c *crowd) read(s *server, page string, seen func(event, data string)) error {
	// One address may have half of the streams only, so the readers come from four.
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+rand.N(4)))}}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: from.DialContext}}
	_, _, body, err := s.tryGet(page)
	if err != nil {
		return err
	}
	m := dataVersion.FindStringSubmatch(body)
	if m == nil {
		return fmt.Errorf("no version in %.500s", body)
	}
	at := s.url + "/stream?u=" + url.QueryEscape(page) + "&v=" + m[1]
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream: %s", resp.Status)
	}
	c.streams.Add(1)
	lines := bufio.NewReader(resp.Body)
	event := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the stream: %w", err)
		}
		line = strings.TrimRight(line, "\n")
		if e, ok := strings.CutPrefix(line, "event: "); ok {
			event = e
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			seen(event, d)
		}
	}
}
