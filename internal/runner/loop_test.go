package runner

import (
	"context"
	"errors"
	"testing"
)

// TestTellAgain: Changed is called again after an error, and not after a success.
func TestTellAgain(t *testing.T) {
	calls := 0
	o := PoolOptions{Changed: func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("the ledger is away")
		}
		return nil
	}}
	r := &poolRun{ctx: t.Context(), changed: true, Pool: &Pool{PoolOptions: o}}
	for range 3 {
		r.tell()
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}
