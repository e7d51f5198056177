package zkserver

import (
	"net"
	"os"
	"syscall"
)

// A reservation is a port that is bound, and not listened at: connections to it are refused, and the system gives it to nobody. It may
// be listened at all the same, again and again, by who knows its number and sets SO_REUSEADDR, as ZooKeeper does.
type reservation struct {
	*os.File
	port int
}

// reserve fails if somebody listens at the port; an exclusive one also if it is reserved, or was in use a moment ago.
func reserve(port int, exclusive bool) (*reservation, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	r := &reservation{os.NewFile(uintptr(fd), loopback(port)), port}
	if !exclusive {
		err = r.admit()
	}
	if err == nil {
		err = os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
	}
	if err != nil {
		r.Close()
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, Err: err}
	}
	return r, nil
}

// admit lets a server listen at the port.
func (r *reservation) admit() error {
	return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(r.Fd()), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
}

// refuse lets connections be refused, which they are.
func (r *reservation) refuse() error { return nil }
