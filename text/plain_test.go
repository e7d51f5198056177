package text

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
)

// TestPlain: nobody reads Go's own words of a network, and a program still finds the error.
func TestPlain(t *testing.T) {
	for want, errs := range map[string][]error{
		"no answer in time":         {context.DeadlineExceeded, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}},
		"the connection was closed": {fmt.Errorf("read: %w", io.EOF), io.ErrUnexpectedEOF, net.ErrClosed},
		"other":                     {errors.New("other")},
	} {
		for _, err := range errs {
			if got := Plain(err); got.Error() != want || !errors.Is(got, err) {
				t.Errorf("%v: %v", err, got)
			}
		}
	}
}
