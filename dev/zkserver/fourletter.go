package zkserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// dialer is a net.Dialer or a tls.Dialer.
type dialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// ask sends one of ZooKeeper's four-letter words and returns the answer. The server then closes the connection.
func ask(ctx context.Context, d dialer, addr, word string) (string, error) {
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s %s: %w", addr, word, ctx.Err())
	}
	if err == nil && strings.Contains(string(answer), "not currently serving") {
		err = fmt.Errorf("%s %s: server is up but not serving", addr, word)
	}
	return string(answer), err
}

// askFields splits each line of the answer at the separator.
func askFields(ctx context.Context, d dialer, addr, word, separator string) (map[string]string, error) {
	answer, err := ask(ctx, d, addr, word)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(answer) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}
