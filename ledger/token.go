package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ParseToken parses the text that Lease.Token returns: "<id>.<attempt>".
func ParseToken(token string) (id, attempt int64, err error) {
	a, b, found := strings.Cut(token, ".")
	id, err1 := strconv.ParseInt(a, 10, 64)
	attempt, err2 := strconv.ParseInt(b, 10, 64)
	if !found || err1 != nil || err2 != nil || id < 1 || attempt < 1 || fmt.Sprintf("%d.%d", id, attempt) != token {
		return 0, 0, &InvalidError{Field: "token", Reason: fmt.Sprintf("%q: must be ID.ATTEMPT, such as 17.3", token)}
	}
	return id, attempt, nil
}

// Lease returns the lease of a token, for a person or script that kept only the token. It has the same lock_id as the
// lease that Claim returned, and the same rights. The attempt may have ended since; Finish then answers as it would
// have answered the holder.
// Errors: ErrNotFound if there is no such item; ErrLeaseLost if no claim of it has had this number.
func (l *Ledger) Lease(ctx context.Context, id, attempt int64) (*Lease, error) {
	it, r, _, err := l.record(ctx, IDs(id))
	if err != nil {
		return nil, err
	}
	ls, err := l.leaseOf(ctx, r, it, attempt)
	if err == nil && r.Work != nil && r.Work.State == StateLeased && r.Work.Attempt == attempt {
		ls.first = r.firstAttempt()
	}
	return ls, err
}

// leaseOf returns the lease of the claim of an item with this number. The claim may have ended.
func (l *Ledger) leaseOf(ctx context.Context, r *Record, it Item, attempt int64) (*Lease, error) {
	ls := &Lease{Item: it, limited: true} // perhaps: a hint too many costs one claim
	ls.Attempt = attempt
	if w := r.Work; w != nil && w.State == StateLeased && w.Attempt == attempt {
		ls.Agent, ls.LockID, ls.StartedAt, ls.ExpiresAt, ls.Alone, ls.epoch = w.Agent, w.LockID, w.LeasedAt, w.ExpiresAt,
			w.Alone, w.Epoch
		return ls, nil
	}
	ls.Agent, ls.ExpiresAt = "", time.Time{} // those of the item belong to another claim
	attempts, err := l.store.AttemptsBefore(ctx, r.ID, attempt+1, 1)
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		if a.Attempt != attempt || a.LockID == "" || a.LeasedAt.IsZero() { // verdicts have no claim
			continue
		}
		if ls.LockID, err = uuid.Parse(a.LockID); err != nil {
			return nil, fmt.Errorf("item %d, attempt %d: lock_id: %w", r.ID, attempt, err)
		}
		ls.Agent, ls.StartedAt, ls.ExpiresAt, ls.epoch = a.Agent, a.LeasedAt, a.FinishedAt, a.Epoch
		return ls, nil
	}
	return nil, ErrLeaseLost
}

// FullToken is "<id>.<attempt>.<lock_id>", for programs that reach the ledger through another program. Unlike Token it
// cannot be guessed, because the lock_id is random: its holder was granted the item.
func (l *Lease) FullToken() string { return l.Token() + "." + l.LockID.String() }

// Take sets the fields of a lease that another program has passed on: from its full token, a time to live that counts
// from called, the idempotency key of its round, and the answer of First. The caller sets Item and the other exported
// fields. Error: ErrInvalid if token is no full token.
func (l *Lease) Take(token, idempotencyKey string, called time.Time, ttl time.Duration, first bool) error {
	t, err := parseFullToken(0, token)
	l.ID, l.Attempt, l.LockID, l.called, l.ttl, l.key = t.ItemID, t.attempt, t.LockID, called, ttl, idempotencyKey
	l.first = first
	return err
}

// LeasesOf returns the leases of full tokens, for programs that kept nothing else, and one error per token. The leases
// may have ended since; each write checks that, as for leases that Claim returned. State and Item.Agent describe the
// item now, Agent is the holder with this token. The items have only their identity. Errors: ErrInvalid if it is no
// full token; ErrLeaseLost if no claim has had this token, or if that is not known because the history was pruned.
func (l *Ledger) LeasesOf(ctx context.Context, tokens ...string) ([]*Lease, []error) {
	leases, errs, ended := l.leasesHeld(ctx, tokens)
	if len(ended) == 0 {
		return leases, errs
	}
	ids := make([]int64, 0, len(ended))
	for _, t := range ended {
		ids = append(ids, t.ItemID)
	}
	recs, err := l.recordsByID(ctx, ids, Filter{}, false)
	var now time.Time
	if err == nil {
		now, err = l.store.Now(ctx) // after they were read
	}
	for i, t := range ended {
		switch r := recs[t.ItemID]; {
		case err != nil:
			errs[i] = err
		case r == nil:
			errs[i] = ErrLeaseLost
		default:
			leases[i], errs[i] = l.endedLease(ctx, r, r.Item(now), t)
		}
	}
	return leases, errs
}

// LeasesHeld is LeasesOf for leases in force only: any other is ErrLeaseLost. It asks the database once.
func (l *Ledger) LeasesHeld(ctx context.Context, tokens ...string) ([]*Lease, []error) {
	leases, errs, ended := l.leasesHeld(ctx, tokens)
	for i := range ended {
		errs[i] = ErrLeaseLost
	}
	return leases, errs
}

// leasesHeld returns the leases in force; ended has the other tokens, by their index.
func (l *Ledger) leasesHeld(ctx context.Context, tokens []string) (leases []*Lease, errs []error,
	ended map[int]fullToken) {
	leases, errs = make([]*Lease, len(tokens)), make([]error, len(tokens))
	named := make([]fullToken, len(tokens))
	ids := make([]int64, 0, len(tokens))
	for i, token := range tokens {
		if named[i], errs[i] = parseFullToken(i, token); errs[i] == nil {
			ids = append(ids, named[i].ItemID)
		}
	}
	leased, err := l.store.Leased(ctx, ids)
	if err != nil {
		return leases, slices.Repeat([]error{err}, len(errs)), nil
	}
	ended = map[int]fullToken{}
	byRef := make(map[LeaseRef]*Record, len(leased))
	for i := range leased {
		byRef[LeaseRef{leased[i].ID, leased[i].Work.LockID}] = &leased[i]
	}
	for i, t := range named {
		switch r := byRef[t.LeaseRef]; {
		case errs[i] != nil:
		case r == nil:
			ended[i] = t
		case r.Work.Attempt != t.attempt:
			errs[i] = ErrLeaseLost
		default:
			leases[i], errs[i] = l.leaseOf(ctx, r, r.Item(r.Work.LeasedAt), t.attempt)
		}
	}
	return leases, errs, ended
}

// endedLease returns the lease of a full token that is not in force.
func (l *Ledger) endedLease(ctx context.Context, r *Record, it Item, t fullToken) (*Lease, error) {
	ls, err := l.leaseOf(ctx, r, it, t.attempt)
	if err == nil && ls.LockID != t.LockID {
		return nil, ErrLeaseLost
	}
	return ls, err
}

// fullToken is the content of the text that FullToken returns.
type fullToken struct {
	LeaseRef
	attempt int64
}

func parseFullToken(index int, token string) (t fullToken, err error) {
	dot := max(0, strings.LastIndexByte(token, '.'))
	lock := strings.TrimPrefix(token[dot:], ".")
	if t.ItemID, t.attempt, err = ParseToken(token[:dot]); err == nil {
		t.LockID, err = uuid.Parse(lock)
	}
	if err != nil || t.LockID.String() != lock {
		return t, &InvalidError{Index: index, Field: "token", Reason: "must be one that a claim returned: ID.ATTEMPT.LOCK"}
	}
	return t, nil
}
