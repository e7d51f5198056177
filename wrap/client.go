package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// Client asks a worker, from inside its command.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a Client of the worker with this socket: the value of MUSTER_SOCKET.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket, &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Self returns which worker it is.
func (c *Client) Self(ctx context.Context) (Self, error) {
	var s Self
	return s, c.ask(ctx, http.MethodGet, "/self", nil, &s)
}

// Members lists who has joined, or who is live, in the order of ids.
func (c *Client) Members(ctx context.Context, live bool) (Members, error) {
	var m Members
	path := "/members"
	if live {
		path += "?live"
	}
	return m, c.ask(ctx, http.MethodGet, path, nil, &m)
}

// Wait waits until all have joined; the end of ctx ends it.
func (c *Client) Wait(ctx context.Context, w Wait) error {
	return c.ask(ctx, http.MethodPost, "/wait", w, &struct{}{})
}

// Barrier waits at a barrier. The end of ctx ends only the waiting: an arrival still counts.
func (c *Client) Barrier(ctx context.Context, b Barrier) error {
	return c.ask(ctx, http.MethodPost, "/barrier", b, &struct{}{})
}

// ask makes one request. The error is a Refusal, or wraps ErrUnavailable, or is why ctx ended.
func (c *Client) ask(ctx context.Context, method, path string, question, into any) error {
	answer, err := c.send(ctx, method, path, question)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err = json.NewDecoder(answer.Body).Decode(into); err != nil {
		return c.unavailable(err)
	}
	return nil
}

// send sends a request, and returns its answer if that is no error. The errors are those of ask.
func (c *Client) send(ctx context.Context, method, path string, question any) (*http.Response, error) {
	var body []byte
	if question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return nil, err
		}
	}
	return c.sendBytes(ctx, method, path, body)
}

// sendBytes is send with a body as it is.
func (c *Client) sendBytes(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, "http://worker"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(q)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, c.unavailable(err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	var r Refusal
	if err == nil && json.Unmarshal(text, &r) == nil && r.Text != "" {
		return nil, &r
	}
	return nil, c.unavailable(errors.Join(err, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))))
}

func (c *Client) unavailable(err error) error {
	var request *url.Error
	if errors.As(err, &request) { // its URL is an invention of ask
		err = request.Err
	}
	var number syscall.Errno
	if errors.As(err, &number) { // the texts around it name the socket, as this one does
		err = number
	}
	return fmt.Errorf("%w at %s (%s): %w", ErrUnavailable, c.socket, SocketVariable, err)
}
