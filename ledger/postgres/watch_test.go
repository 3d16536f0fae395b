package postgres_test

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// The commit of a caller's transaction wakes those who wait in other processes, and not only their next look.
func TestCommitOfTheCallerIsHeard(t *testing.T) {
	r := newRig(t)
	other, err := postgres.Open(t.Context(), r.pool, postgres.Options{Schema: r.schema})
	must.OK(t, err)
	defer other.Close()
	woken := watch(t, other)
	await(t, woken, "") // it listens
	for name, begin := range r.begins(t) {
		tx, commit, _ := begin()
		kind := strings.NewReplacer(".", "-", ", ", "-").Replace(strings.ToLower(name))
		if _, err := r.AddTx(t.Context(), tx, ledger.NewItem{Kind: kind, Key: "x"}); err != nil {
			t.Fatal(err)
		}
		must.OK(t, commit())
		await(t, woken, kind)
	}
}
