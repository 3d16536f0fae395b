package typed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// Kind declares a kind of items and the type of their payload. Only Name is required. The policy of the kind, such as
// how often an item is tried, is kept in the ledger: see Ledger.EditKind.
type Kind[T any] struct {
	Name string
	// Scope is the space within which a key is known; "" is the default scope.
	Scope string
	// Key is what an item is about. Nil derives it from the payload: equal values are one item. [Fresh] makes every
	// add a new item.
	Key func(T) string
	// Once is how often a key is worked; the zero value is ForEver.
	Once Once
	// Differs is what adding a known key with another payload does; the zero value is Refuse.
	Differs Differs
	// With, unless it is nil, changes each item that is added or emitted: its ShardKey, Priority or Due.
	With func(T, *ledger.NewItem)
}

// Once is how often a key is worked, see the package comment.
type Once struct {
	whileOpen   bool
	every, zone string
}

// ForEver and WhileOpen are described in the package comment.
var (
	ForEver   = Once{}
	WhileOpen = Once{whileOpen: true}
)

// PerPeriod is once in each period: "hour", "day", "week", a duration or five cron fields, as Every of ledger.NewItem
// has them, in an IANA time zone; "" is UTC.
func PerPeriod(every, zone string) Once { return Once{every: every, zone: zone} }

// Differs decides what adding a known key with another payload does.
type Differs int8

const (
	// Refuse leaves the item as it is and returns an error that matches ledger.ErrConflict.
	Refuse Differs = iota
	// Keep leaves the item as it is and returns no error; the verdict is ledger.VerdictDiffers.
	Keep
	// Replace gives the item the new payload and has it worked again, as a changed fingerprint does: in a new round
	// if the one before was tried or has ended; after the attempt that runs; with ForEver, too. An item in doubt stays as
	// it is. Of an item that was added without Replace the payload is not replaced: another payload is refused, and
	// adding the old payload again then has the item worked again.
	Replace
)

// Fresh is a Key that makes every add a new item.
func Fresh[T any](T) string { return uuid.Must(uuid.NewV7()).String() }

// forever is later than the end of any attempt.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Item returns the new item of a value. now is a time of the database's clock. With PerPeriod, the later of now and Due
// of the item decides its period. The functions with change the item after With of the kind: its priority, its due
// time.
func (k Kind[T]) Item(now time.Time, v T, with ...func(*ledger.NewItem)) (ledger.NewItem, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return ledger.NewItem{}, &ledger.Error{Kind: ledger.ErrInvalid, Err: err,
			Message: fmt.Sprintf("the payload of kind %s is no JSON: %v", k.Name, err)}
	}
	n := ledger.NewItem{Kind: k.Name, Scope: k.Scope, Payload: payload}
	digest := sha256.Sum256(payload)
	short := hex.EncodeToString(digest[:16])
	if k.Key != nil {
		n.Key = k.Key(v)
	} else {
		n.Key = short
	}
	if k.Differs == Replace {
		n.Fingerprint = short
	}
	if k.Once.whileOpen {
		n.Again = ledger.Again{Dead: true, Cancelled: true, DoneBefore: forever}
	}
	if k.With != nil {
		k.With(v, &n)
	}
	for _, f := range with {
		f(&n)
	}
	if n.Every != "" && k.Once != ForEver {
		return n, &ledger.InvalidError{Field: "every", Reason: fmt.Sprintf("is for kinds with typed.ForEver; %s has another Once",
			k.Name), Hint: "an item with Every is added once, and is worked once in each period"}
	}
	if k.Once.every == "" {
		return n, nil
	}
	period, err := recurrence.Parse(k.Once.every, k.Once.zone)
	if bad := (*recurrence.Error)(nil); errors.As(err, &bad) {
		return n, &ledger.InvalidError{Field: bad.Field, Reason: bad.Reason}
	} else if err != nil {
		return n, err
	}
	if n.Due.After(now) {
		now = n.Due
	}
	name := period.Name(period.Start(now))
	if n.Scope != "" {
		name = n.Scope + "/" + name
	}
	n.Scope = name
	return n, nil
}

// Add adds the item of a value; see Item for the functions.
func (k Kind[T]) Add(ctx context.Context, l *ledger.Ledger, v T, with ...func(*ledger.NewItem)) (ledger.Added, error) {
	return one(k.add(ctx, l, nil, []T{v}, with))
}

// AddTx is Add inside the caller's transaction: the item exists if and only if it commits. After an error the caller
// rolls back.
func (k Kind[T]) AddTx(ctx context.Context, l *ledger.Ledger, tx ledger.Conn, v T,
	with ...func(*ledger.NewItem)) (ledger.Added, error) {
	return one(k.AddManyTx(ctx, l, tx, []T{v}, with...))
}

// AddMany adds the items of values, in transactions of bounds.MaxBatch, and returns one answer for each in the same
// order. If a payload differs and is refused, the other items are added all the same. After an error AddMany may be
// repeated, but not with [Fresh]: then the items of transactions that were committed are added twice.
func (k Kind[T]) AddMany(ctx context.Context, l *ledger.Ledger, vs []T,
	with ...func(*ledger.NewItem)) ([]ledger.Added, error) {
	return k.add(ctx, l, nil, vs, with)
}

// AddManyTx is AddMany inside the caller's transaction. After an error the caller rolls back.
func (k Kind[T]) AddManyTx(ctx context.Context, l *ledger.Ledger, tx ledger.Conn, vs []T,
	with ...func(*ledger.NewItem)) ([]ledger.Added, error) {
	if tx == nil {
		_, err := l.AddTx(ctx, nil)
		return nil, err
	}
	return k.add(ctx, l, tx, vs, with)
}

// one returns the only answer.
func one(added []ledger.Added, err error) (ledger.Added, error) {
	if len(added) == 0 {
		return ledger.Added{}, err
	}
	return added[0], err
}

func (k Kind[T]) add(ctx context.Context, l *ledger.Ledger, tx ledger.Conn, vs []T,
	with []func(*ledger.NewItem)) (added []ledger.Added, err error) {
	now, err := k.now(ctx, l, tx)
	if err != nil {
		return nil, err
	}
	items := make([]ledger.NewItem, len(vs))
	for i, v := range vs {
		if items[i], err = k.Item(now, v, with...); err != nil {
			return nil, err
		}
	}
	for batch := range slices.Chunk(items, bounds.MaxBatch) {
		var some []ledger.Added
		if tx == nil {
			some, err = l.Add(ctx, batch...)
		} else {
			some, err = l.AddTx(ctx, tx, batch...)
		}
		if err != nil {
			return added, err
		}
		added = append(added, some...)
	}
	return added, k.refused(items, added)
}

// now returns the time of the database's clock if the period of an item depends on it. In a transaction of the caller
// it asks in that transaction, because there may be no second connection.
func (k Kind[T]) now(ctx context.Context, l *ledger.Ledger, tx ledger.Conn) (now time.Time, err error) {
	switch {
	case k.Once.every == "":
		return now, nil
	case tx == nil:
		return l.Now(ctx)
	}
	err = l.LockStore().Update(ctx, tx, func(in ledger.Tx) error {
		now = in.Now()
		return nil
	})
	return now, err
}

// refused returns the error about items that are known with another payload; nil if there are none.
func (k Kind[T]) refused(items []ledger.NewItem, added []ledger.Added) error {
	if k.Differs == Keep {
		return nil
	}
	var first *ledger.NewItem
	var id int64
	n := 0
	for i := range added {
		if added[i].Verdict == ledger.VerdictDiffers {
			if n++; first == nil {
				first, id = &items[i], added[i].ID
			}
		}
	}
	if first == nil {
		return nil
	}
	others := ""
	if n > 1 {
		others = fmt.Sprintf(", and %d more", n-1)
	}
	return &ledger.Error{Kind: ledger.ErrConflict,
		Message: fmt.Sprintf("item %d (kind %s, scope %q, key %q) is known with another payload%s", id, first.Kind,
			first.Scope, first.Key, others),
		Hint: "give the other value another key, or choose typed.Keep or typed.Replace for Differs of the kind"}
}
