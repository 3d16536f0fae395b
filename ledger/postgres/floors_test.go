package postgres_test

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// A database that has got its rows by logical replication has sequences that were never used. That is reported, and
// both ways to go on raise them.
func TestLaggingSequences(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.Database(t)
	s, err := postgres.Connect(ctx, url, postgres.Options{})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	t.Cleanup(func() { must.OK(t, l.Close()) })
	report := func() (all []string) {
		found, _ := postgres.Examine(ctx, url, postgres.Options{})
		for _, f := range found {
			if f.Check == "sequence" {
				all = append(all, f.What)
				if f.Act.Name != act.Moved {
					t.Errorf("%+v", f)
				}
			}
		}
		return all
	}
	moved := func() error { _, err := l.Moved(ctx, "test"); return err }
	restored := func() error { _, _, err := l.Restored(ctx, "test"); return err }
	must.OK(t, moved())
	for name, goOn := range map[string]func() error{"moved": moved, "restored": restored} {
		must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: name}, ledger.NewItem{Kind: "k", Key: name + " 2"}))
		if all := report(); len(all) != 0 {
			t.Errorf("%s: %q before", name, all)
		}
		execute(t, url, "ALTER SEQUENCE ledger_items_id_seq RESTART; ALTER SEQUENCE ledger_journal_id_seq RESTART")
		if all := report(); len(all) != 2 || !strings.HasPrefix(all[0], "the sequence of ledger_items lags behind its rows") {
			t.Errorf("%s: %q", name, all)
		}
		if err := goOn(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: name + " 3"}); err != nil || len(report()) != 0 {
			t.Errorf("%s: %v, %q", name, err, report())
		}
	}
}
