package cluster

import (
	"errors"
	"os"
	"syscall"
)

// On Windows no server is started, so LEDGERD_TEST_POSTGRES has to name one.

// Credential is a user and a group.
type Credential struct{ Uid, Gid uint32 }

// As returns nil: only Unix needs it.
func As(*Credential) *syscall.SysProcAttr { return nil }

func newSession() *syscall.SysProcAttr { return nil }

const shared, exclusive = 0, 1

func flock(*os.File, int) error { return errors.ErrUnsupported }
