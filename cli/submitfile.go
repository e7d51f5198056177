package cli

import (
	"context"
	"os"

	"muster/text"
)

// readableTwice refuses what is no file: a pipe yields nothing when it is read again.
func readableTwice(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return usagef("muster submit QUEUE --files "+text.ShellWord(name)+"/*", "%s is a directory", name)
	case !info.Mode().IsRegular():
		return usagef("write it into a file first", "%s is not a file, and --files reads each one twice", name)
	}
	return nil
}

// openFile opens a file, or ends with ctx: a named pipe is open only when somebody writes to it.
func openFile(ctx context.Context, name string) (*os.File, error) {
	type answer struct {
		f   *os.File
		err error
	}
	opened := make(chan answer, 1)
	go func() {
		f, err := os.Open(name)
		opened <- answer{f, err}
	}()
	select {
	case a := <-opened:
		return a.f, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
