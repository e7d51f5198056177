package text

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
)

// Plain is an error of a network or of a context, with words in place of Go's own: for "i/o timeout" or "EOF" nobody
// knows what to do.
func Plain(err error) error {
	for _, p := range []struct {
		words string
		of    []error
	}{
		{"no answer in time", []error{context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{"the connection was closed", []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed}},
	} {
		for _, of := range p.of {
			if errors.Is(err, of) {
				return &plain{err, p.words}
			}
		}
	}
	return err
}

type plain struct {
	error
	words string
}

func (p *plain) Error() string { return p.words }
func (p *plain) Unwrap() error { return p.error }
