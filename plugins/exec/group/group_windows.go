package group

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

var errNone = errors.New("commands do not run on Windows: it has no process groups, and /bin/sh cannot clean up")

// Keeper runs no commands here.
type Keeper struct{}

// NewKeeper returns an error, so the methods of a Keeper are never called.
func NewKeeper() (*Keeper, error) { return nil, errNone }

// Temporary returns an error.
func (*Keeper) Temporary() (string, error) { return "", errNone }

// Run returns an error.
func (*Keeper) Run(context.Context, *exec.Cmd, time.Duration, func()) (*os.ProcessState, bool, error) {
	return nil, false, errNone
}

// Close does nothing.
func (*Keeper) Close() error { return nil }

// RemoveAll removes a folder.
func RemoveAll(folder string) error { return os.RemoveAll(folder) }
