//go:build unix

package smtp

import (
	"errors"
	"net"
	"syscall"
)

// silent reports whether the connection is open and has no unread bytes. It does not block.
func (w *wire) silent() bool {
	raw, err := w.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	err = raw.Read(func(fd uintptr) bool {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && errors.Is(peeked, syscall.EAGAIN)
}
