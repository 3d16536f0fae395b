//go:build unix

package sqlite

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// Having no free file descriptor is a temporary error, other than a file that may not be opened.
func TestOutOfFiles(t *testing.T) {
	s := testStore(t, Options{})
	var limit unix.Rlimit
	must.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 5
	must.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	_, err := s.Count(context.Background(), ledger.Filter{})
	must.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if !errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrDenied) {
		t.Errorf("%v", err)
	}
	if _, err := s.Count(t.Context(), ledger.Filter{}); err != nil {
		t.Error(err)
	}
}
