package wrap

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// streams are the pipes of a command.
type streams struct {
	in, out, err *os.File   // this process's ends; in is nil if the command gets no input
	files        []*os.File // the command's
	opened       []*os.File // of files, those to close
}

func (w *crew) openStreams(withInput bool) (*streams, error) {
	s := &streams{files: []*os.File{w.null, nil, nil}}
	ours := []**os.File{&s.in, &s.out, &s.err}
	for i := range ours {
		if i == 0 && !withInput {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			s.started()
			s.close()
			return nil, err
		}
		if i == 0 {
			r, w = w, r
		}
		*ours[i], s.files[i] = r, w
		s.opened = append(s.opened, w)
	}
	return s, nil
}

// started closes the ends that the command has now.
func (s *streams) started() {
	for _, f := range s.opened {
		_ = f.Close()
	}
	s.opened = nil
}

// end ends every wait for the command's group, which has ended. A process outside of it may hold the pipes open.
func (s *streams) end() {
	if s.in != nil {
		_ = s.in.Close()
	}
	_ = s.out.SetReadDeadline(time.Now())
	_ = s.err.SetReadDeadline(time.Now())
}

func (s *streams) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// pourBuffer is how much of a pipe is read at once.
const pourBuffer = 8 << 10

// pour calls each with what comes from a pipe, until its end. When the read deadline has passed, it takes what is in
// the pipe, and returns.
func pour(f *os.File, each func([]byte)) {
	buf := make([]byte, pourBuffer)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			each(buf[:n])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			pourRest(f, buf, each)
			return
		case err != nil:
			return
		}
	}
}

// pipeSize bounds what a pipe may hold, so that a process that goes on writing is left alone.
const pipeSize = 1 << 20

// pourRest takes what is in the pipe, without waiting.
func pourRest(f *os.File, buf []byte, each func([]byte)) {
	_ = f.SetReadDeadline(time.Time{})
	for rest := pipeSize; rest > 0; {
		n := readNow(f, buf)
		if n <= 0 {
			return
		}
		each(buf[:n])
		rest -= n
	}
}

// readNow reads what is there, without waiting. n is not positive if nothing is.
func readNow(f *os.File, buf []byte) (n int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool {
		for {
			var err error
			if n, err = syscall.Read(int(fd), buf); err != syscall.EINTR {
				return true
			}
		}
	})
	return n
}
