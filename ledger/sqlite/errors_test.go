package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

func TestExplain(t *testing.T) {
	own := errors.New("a rule's own")
	for _, tt := range []struct {
		err, is error
		message string
	}{
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, ledger.ErrDenied, "permission denied"},
		{&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EROFS}, ledger.ErrDenied, "/x"},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, ledger.ErrUnavailable, "the disk is full"},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.EDQUOT}, ledger.ErrUnavailable, "the disk is full"},
		{fmt.Errorf("op: %w", context.Canceled), context.Canceled, "op"},
		{&ledger.InvalidError{Field: "key", Reason: "is empty"}, ledger.ErrInvalid, "key: is empty"},
		{own, own, own.Error()},
	} {
		got := explain("a.db", tt.err)
		if !errors.Is(got, tt.is) || !errors.Is(got, tt.err) || !strings.Contains(got.Error(), tt.message) {
			t.Errorf("%v: %v", tt.err, got)
		}
		if again := explain("b.db", got); again.Error() != got.Error() {
			t.Errorf("explained twice: %v", again)
		}
	}
	if explain("a.db", nil) != nil {
		t.Error("no error became one")
	}
}
