package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ParseToken reads what Lease.Token writes: "<id>.<attempt>".
func ParseToken(token string) (id, attempt int64, err error) {
	a, b, found := strings.Cut(token, ".")
	id, err1 := strconv.ParseInt(a, 10, 64)
	attempt, err2 := strconv.ParseInt(b, 10, 64)
	if !found || err1 != nil || err2 != nil || id < 1 || attempt < 1 || fmt.Sprintf("%d.%d", id, attempt) != token {
		return 0, 0, &InvalidError{Field: "token", Reason: fmt.Sprintf("%q: must be ID.ATTEMPT, such as 17.3", token)}
	}
	return id, attempt, nil
}

// Lease is the lease that a token names, for who kept nothing but the token: a person, a script. It is
// fenced as the one that Claim returned: both carry the lock_id that the claim had. The attempt may have
// ended since; what Finish says of it then is what it would have said to its holder.
// Errors: ErrNotFound if there is no such item; ErrLeaseLost if no claim of it has had this number.
func (l *Ledger) Lease(ctx context.Context, id, attempt int64) (*Lease, error) {
	it, r, _, err := l.record(ctx, IDs(id))
	if err != nil {
		return nil, err
	}
	ls := &Lease{Item: it}
	ls.Attempt = attempt
	if w := r.Work; w != nil && w.State == StateLeased && w.Attempt == attempt {
		ls.Agent, ls.LockID, ls.StartedAt, ls.ExpiresAt, ls.Alone, ls.epoch = w.Agent, w.LockID, w.LeasedAt, w.ExpiresAt, w.Alone, w.Epoch
		return ls, nil
	}
	ls.Agent, ls.ExpiresAt = "", time.Time{} // of another claim
	attempts, err := l.store.Attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		if a.Attempt != attempt || a.LockID == "" || a.LeasedAt.IsZero() { // the latter are verdicts, without a claim
			continue
		}
		if ls.LockID, err = uuid.Parse(a.LockID); err != nil {
			return nil, fmt.Errorf("item %d, attempt %d: lock_id: %w", id, attempt, err)
		}
		ls.Agent, ls.StartedAt, ls.ExpiresAt, ls.epoch = a.Agent, a.LeasedAt, a.FinishedAt, a.Epoch
		return ls, nil
	}
	return nil, ErrLeaseLost
}
