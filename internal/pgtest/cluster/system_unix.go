//go:build unix

package cluster

import (
	"os"
	"syscall"
)

// Credential is a user and a group.
type Credential = syscall.Credential

// As returns the attributes with which a process runs as another user; nil means the caller.
func As(c *Credential) *syscall.SysProcAttr { return &syscall.SysProcAttr{Credential: c} }

func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// Modes of [lock].
const (
	shared    = syscall.LOCK_SH
	exclusive = syscall.LOCK_EX
)

func flock(f *os.File, mode int) error { return syscall.Flock(int(f.Fd()), mode) }
