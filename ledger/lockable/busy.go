package lockable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// How a busy SQLite file is waited for. SQLite's own busy handler sleeps too long between its tries: beside a process
// that writes all the time it never gets the lock.
const (
	pauseMin, pauseMax = 50 * time.Microsecond, 350 * time.Microsecond
	patience           = 10 * time.Second
)

// do runs an operation and names it in its error. While another writer has an SQLite file, the operation is repeated,
// but not within a transaction: the caller must begin that anew.
func (r *Claimer[R]) do(ctx context.Context, what string, op func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := op()
		switch {
		case err == nil:
			return nil
		case r.plan.postgres || !busy(err):
			return fmt.Errorf("lockable: %s %s: %w", what, r.plan.name, err)
		case r.inTx || time.Now().After(deadline):
			return fmt.Errorf("lockable: %s %s: another writer has the file; begin anew: %w", what, r.plan.name,
				errors.Join(ledger.ErrUnavailable, err))
		}
		if err := wait.For(ctx, pauseMin+rand.N(pauseMax-pauseMin)); err != nil {
			return fmt.Errorf("lockable: %s %s: %w", what, r.plan.name, err)
		}
	}
}

// busy reports whether another connection holds a lock of an SQLite file, by the result code of its
// driver's error.
func busy(err error) bool {
	const sqliteBusy, sqliteLocked = 5, 6
	var coded interface{ Code() int }
	return errors.As(err, &coded) && (coded.Code()&0xff == sqliteBusy || coded.Code()&0xff == sqliteLocked)
}
