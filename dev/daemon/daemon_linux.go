package daemon

import (
	"net"
	"os"
	"syscall"
)

// attributes give a server its own process group, so that Ctrl-C in a terminal reaches only the parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitStopped waits until the process is stopped. It does not consume the state, so another wait still gets it.
func waitStopped(pid int) error {
	const processID = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID,
			processID, uintptr(pid), 0, syscall.WSTOPPED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("waitid", errno)
		}
	}
}

// Reservation is a socket that is bound to a port and does not listen. Connections to the port are refused, and the
// system does not give it to other programs. A program that sets SO_REUSEADDR, as ZooKeeper does, can listen at the
// port.
type Reservation struct {
	*os.File
	Port int
}

// Reserve reserves a port. It fails if a program listens at the port. With exclusive, it also fails if the port is
// reserved or was in use a moment ago.
func Reserve(port int, exclusive bool) (*Reservation, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	r := &Reservation{os.NewFile(uintptr(fd), Loopback(port)), port}
	if !exclusive {
		err = r.AllowListen()
	}
	if err == nil {
		addr := &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
		err = os.NewSyscallError("bind", syscall.Bind(fd, addr))
	}
	if err != nil {
		_ = r.Close()
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr, Err: err}
	}
	return r, nil
}

// AllowListen permits a server to listen at the port.
func (r *Reservation) AllowListen() error {
	err := syscall.SetsockoptInt(int(r.Fd()), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	return os.NewSyscallError("setsockopt", err)
}

// Refuse makes connections be refused. A bound port already refuses them.
func (r *Reservation) Refuse() error { return nil }
