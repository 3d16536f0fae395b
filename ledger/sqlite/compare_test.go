package sqlite_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestCompare(t *testing.T) { storetest.Compare(t, place) }

func TestCompareLimits(t *testing.T) { storetest.CompareLimits(t, place) }

func place(t testing.TB, now func() time.Time) storetest.Place {
	path := newPath(t)
	b := sqlite.NewBreaker(t)
	db := database(t, path)
	db.SetMaxIdleConns(0) // so that closing the ledger closes the file
	return storetest.Place{
		Open: func() (ledger.Store, error) {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: now})
			if err == nil {
				b.Attach(s)
			}
			return s, err
		},
		Begin: func() (ledger.Conn, func(bool) error, error) {
			tx, err := db.BeginTx(t.Context(), nil)
			return sqlite.Wrap(tx), func(commit bool) error {
				if commit {
					return tx.Commit()
				}
				return tx.Rollback()
			}, err
		},
		Faults: sqlite.Faults,
		Break:  b.Break,
	}
}
