package sqlite

import (
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// tx is a ledger.Tx, in a turn of the writer or in a transaction of the caller. It takes the turn only when it first
// writes, or reads with the lock: a search for expired leases that finds none needs no turn.
type tx struct {
	sharedTx
	s       *Store
	turn    *turn   // nil in the caller's transaction
	session session // nil until the turn has come
	now     time.Time
}

var _ ledger.Tx = (*tx)(nil)

func newTx(s *Store) *tx {
	x := &tx{s: s}
	x.sharedTx = sqlstore.NewTx(lazy{x}, x.Now)
	return x
}

// begin makes sure that the transaction has the write lock.
func (x *tx) begin() error {
	if x.session != nil {
		return nil
	}
	if err := x.turn.take(); err != nil {
		return err
	}
	x.session, x.now = x.turn, x.turn.now
	return nil
}

// Now implements ledger.Tx. If the turn does not come, the whole transaction fails, even if the rule uses nothing but
// the time.
func (x *tx) Now() time.Time {
	if x.begin() != nil {
		return x.s.clock()
	}
	return x.now
}

// Load implements ledger.Tx.
func (x *tx) Load(ids []int64) ([]ledger.Record, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	recs, err := load(x.session, ids)
	if err != nil {
		return nil, err
	}
	policies := map[string]*ledger.Kind{}
	for i := range recs {
		k := recs[i].Kind
		if _, known := policies[k]; !known {
			policy, err := sqlstore.Kind(sharedSession{x.session, x.now}, k)
			if err != nil {
				return nil, err
			}
			policies[k] = &policy
		}
		recs[i].Policy = policies[k]
	}
	return recs, nil
}

var selectIdentities = newBulk("SELECT i.id FROM (", 3, ") v CROSS JOIN ledger_items i ON i.kind = v.column1 AND "+
	"i.scope = v.column2 AND i.key = v.column3")

// LoadKeys implements ledger.Tx.
func (x *tx) LoadKeys(keys []ledger.Identity) ([]ledger.Record, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	ids := make([]int64, 0, len(keys))
	err := selectIdentities.query(x.session, len(keys), func(list []any, i int) []any {
		return append(list, keys[i].Kind, keys[i].Scope, keys[i].Key)
	}, func(r row) error {
		ids = append(ids, r.int(0))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x.Load(ids)
}

// errEnough ends a query before its last row.
var errEnough = errors.New("enough")

// exists reports whether a query has a row.
func exists(s session, query string, args ...any) (bool, error) {
	some := false
	err := s.query(`SELECT EXISTS(`+query+`)`, func(r row) error {
		some = r.bool(0)
		return nil
	}, args...)
	return some, err
}

var insertKinds = newBulk(`INSERT INTO ledger_kinds (kind)`, 1, ` ON CONFLICT (kind) DO NOTHING`)

// EnsureKinds implements ledger.Tx.
func (x *tx) EnsureKinds(names []string) error {
	if err := x.begin(); err != nil {
		return err
	}
	return insertKinds.exec(x.session, len(names), func(list []any, i int) []any { return append(list, names[i]) })
}

// PutKind implements ledger.Tx.
func (x *tx) PutKind(k ledger.Kind) error {
	changed, err := sqlstore.PutKind(lazy{x}, k)
	if err != nil || !changed || !k.Limits.Any() {
		return err
	}
	return x.countLeased(k)
}

// Standing implements ledger.Tx.
func (x *tx) Standing(kind string) (stats.Standing, error) {
	if err := x.begin(); err != nil {
		return stats.Standing{}, err
	}
	return standing(x.session, kind, scheduler.Shard{}, x.now)
}
