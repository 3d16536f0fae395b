package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/schema"
)

// Older is a ledger of an older schema.
type Older struct {
	Exec   func(statement string)
	Moment func(time.Time) string // a time in SQL
	LockID string                 // a lock id in SQL
	// Open brings the ledger up to date and opens it.
	Open func() *ledger.Ledger
}

// Migrate makes a ledger by the migrations of a folder of files, up to the newest.
func Migrate(t testing.TB, db *sql.DB, dialect goose.Dialect, files fs.FS, folder, newest string) {
	t.Helper()
	old := fstest.MapFS{}
	all, err := fs.ReadDir(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Name() <= newest {
			text, err := fs.ReadFile(files, folder+"/"+f.Name())
			if err != nil {
				t.Fatal(err)
			}
			old[f.Name()] = &fstest.MapFile{Data: text}
		}
	}
	p, err := goose.NewProvider(dialect, db, old, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Upgrade runs the tests of ledgers of older schemas, with work in them. make makes a ledger with the
// migrations up to the newest.
func Upgrade(t *testing.T, make func(t *testing.T, newest string) Older) {
	for name, c := range map[string]struct {
		newest string
		test   func(*testing.T, Older)
	}{
		"first":     {"00001_ledger.sql", upgradeWork},
		"tallies":   {"00005_tallies.sql", upgradeWork},
		"recurring": {"00007_stalled.sql", upgradeRecurring},
		"failing":   {"00011_lost.sql", upgradeFailing},
		"leased":    {"00012_outages.sql", upgradeLeased},
	} {
		t.Run(name, func(t *testing.T) { c.test(t, make(t, c.newest)) })
	}
}

// upgradeWork: a ledger with work in it goes on as it is, and has what is new: locks, resources, limits.
func upgradeWork(t *testing.T, old Older) {
	now := old.Moment(time.Now())
	old.Exec("INSERT INTO ledger_kinds (kind) VALUES ('k')")
	old.Exec("INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'a', 663, " + now + "), ('k', 'b', 547, " +
		now + ")")
	old.Exec("INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at) VALUES (1, 'k', 1, 663, " + now + ")")
	old.Exec(fmt.Sprintf("INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, locked_by, lock_id, "+
		"leased_at, expires_at) VALUES (2, 'k', 2, 547, %[1]s, 1, 'x', %[2]s, %[1]s, %[1]s)", now, old.LockID))
	h := &harness{t: t, ctx: t.Context(), l: old.Open()}
	if n, err := h.l.Expire(h.ctx, 10); n != 1 || err != nil {
		t.Fatalf("%d expired, %v", n, err)
	}
	if it, err := h.l.Find(h.ctx, "k", "", "a"); it.State != ledger.StateReady || err != nil {
		t.Errorf("%+v, %v", it, err)
	}
	_, err := h.l.Add(h.ctx, ledger.NewItem{Kind: "k", Key: "c", Resources: []string{"r"}})
	h.ok(err)
	if ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 10}); len(ls) != 3 || err != nil {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	h.ok(h.l.SetKind(h.ctx, "a", ledger.Kind{Name: "limited", Limits: scheduler.Limits{MaxRunning: 1}}))
	h.ok(locks.New(h.l).Do(h.ctx, "l", locks.Options{}, func(context.Context, *locks.Lock) error { return nil }))
	h.verify()
}

// upgradeLeased: what was leased under schema 12 is held as it was, by its token, and until the time that each item
// had.
func upgradeLeased(t *testing.T, old Older) {
	now := time.Now()
	old.Exec("INSERT INTO ledger_kinds (kind, on_lost, gated, limits, laned) VALUES ('k', 0, false, '', false), " +
		"('once', 1, false, '', false), ('few', 0, false, '{\"max_running\":1}', true)")
	for i, row := range []struct {
		kind, more, values string
		lease              int // the first item of the claim; 0: not leased
		until              time.Duration
	}{
		{"k", "", "", 1, time.Hour}, {"k", "", "", 1, -time.Second}, {"k", ", cancel", ", CAST(1 AS BOOLEAN)", 1, time.Hour},
		{"k", ", reopen", ", CAST(1 AS BOOLEAN)", 4, time.Hour}, {"k", "", "", 0, 0},
		{"once", ", started_at", ", " + old.Moment(now), 6, -time.Second},
		{"few", ", gate, limit_key", ", 1, ''", 7, time.Hour},
		{"few", ", gate, limit_key", ", 1, ''", 0, 0},
	} {
		id, key := i+1, fmt.Sprint("key ", i+1)
		epoch := 1
		if row.more == ", reopen" {
			epoch = 2
		}
		old.Exec(fmt.Sprintf("INSERT INTO ledger_items (kind, key, slot, created_at, epoch) VALUES ('%s', '%s', %d, %s, %d)",
			row.kind, key, scheduler.Slot(key), old.Moment(now), epoch))
		state, lease, leased := 1, "", ""
		if row.lease > 0 {
			lock := old.LockID
			if row.lease < id {
				lock = fmt.Sprintf("(SELECT lock_id FROM ledger_backlog WHERE item_id = %d)", row.lease)
			}
			state, lease = 2, ", attempt, locked_by, leased_at, expires_at, lock_id"
			leased = fmt.Sprintf(", 1, 'x', %s, %s, %s", old.Moment(now), old.Moment(now.Add(row.until)), lock)
		}
		old.Exec(fmt.Sprintf("INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at%s%s) VALUES (%d, '%s', %d, %d, %s%s%s)",
			lease, row.more, id, row.kind, state, scheduler.Slot(key), old.Moment(now), leased, row.values))
	}
	h := &harness{t: t, ctx: t.Context(), l: old.Open()}
	h.verify()
	held, err := h.l.LeasedBy(h.ctx)
	equal(t, "leased by x", held, map[string]int64{"x": 6})
	h.ok(err)
	lease := func(id int64) *ledger.Lease {
		ls, err := h.l.Lease(h.ctx, id, 1)
		h.ok(err)
		return ls
	}
	first, second, third := lease(1), lease(2), lease(3)
	if first.LockID != second.LockID || first.Agent != "x" || !first.ExpiresAt.After(now) || second.ExpiresAt.After(now) {
		t.Errorf("leased as %+v and %+v", first, second)
	}
	if n, err := h.l.Expire(h.ctx, 10); n != 2 || err != nil { // the second, and the one that began
		t.Errorf("%d expired, %v", n, err)
	}
	h.ok(errors.Join(h.l.Renew(h.ctx, 2*time.Hour, first)...))
	for _, ls := range []*ledger.Lease{first, third, lease(4), lease(7)} {
		h.ok(h.l.Finish(h.ctx, ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0])
	}
	h.is(h.l.Finish(h.ctx, ledger.Ending{Lease: second, Result: ledger.Done(nil)})[0], ledger.ErrLeaseLost)
	for kind, n := range map[string]int{"k": 3, "few": 1, "once": 0} { // one reopened, one lost, one ready
		if got, err := h.l.Claim(h.ctx, ledger.Claim{Kind: kind, Agent: "a", Limit: 10}); len(got) != n || err != nil {
			t.Errorf("%d leases of %s, want %d, %v", len(got), kind, n, err)
		}
	}
	h.verify()
}

// upgradeRecurring: items whose round was done, failed for good or begun under schema 7 stand as they did, and
// what was done may be opened again in the same period.
func upgradeRecurring(t *testing.T, old Older) {
	every, err := recurrence.Parse("30d", "")
	if err != nil {
		t.Fatal(err)
	}
	period := every.Start(time.Now())
	next := period.Add(30 * 24 * time.Hour)
	old.Exec(`INSERT INTO ledger_kinds (kind) VALUES ('r')`)
	for i, item := range []struct {
		key                      string
		state, failures, outcome int
		final                    bool
		due                      time.Time
	}{{"done", 0, 0, 0, true, next}, {"failed", 0, 0, 2, true, next}, {"begun", 1, 1, 2, false, period}} {
		slot, began := scheduler.Slot(item.key), old.Moment(period)
		old.Exec(fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, every, created_at)
			VALUES ('r', '%s', %d, '30d', %s)`, item.key, slot, began))
		old.Exec(fmt.Sprintf(`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, failures)
			VALUES (%d, 'r', %d, %d, %s, 1, %d)`, i+1, item.state, slot, old.Moment(item.due), item.failures))
		old.Exec(fmt.Sprintf(`INSERT INTO ledger_attempts (item_id, kind, attempt, epoch, agent, leased_at, finished_at,
			period, outcome, final) VALUES (%d, 'r', 1, 1, 'x', %[2]s, %[2]s, %[2]s, %[3]d, %[4]t)`, i+1, began, item.outcome,
			item.final))
	}
	h := &harness{t: t, ctx: t.Context(), l: old.Open()}
	rounds := func(want map[ledger.RoundState]int64) {
		t.Helper()
		for state, n := range want {
			if got, err := h.l.Count(h.ctx, ledger.Filter{Rounds: []ledger.RoundState{state}}); got != n || err != nil {
				t.Errorf("%d %s, want %d, %v", got, state, n, err)
			}
		}
		h.verify()
	}
	rounds(map[ledger.RoundState]int64{ledger.RoundDone: 1, ledger.RoundFailed: 1, ledger.RoundOpen: 1})
	if n, err := h.l.Retry(h.ctx, "ann", ledger.Filter{Rounds: []ledger.RoundState{ledger.RoundFailed}}); n != 1 ||
		err != nil {
		t.Errorf("%d retried, %v", n, err)
	}
	if n, err := h.l.Reopen(h.ctx, "ann", ledger.IDs(1)); n != 1 || err != nil {
		t.Errorf("%d reopened, %v", n, err)
	}
	leases, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "r", Agent: "a", Limit: 10})
	if len(leases) != 3 || err != nil {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	for _, lease := range leases {
		h.ok(h.l.Finish(h.ctx, ledger.Ending{Lease: lease, Result: ledger.Done(nil)})[0])
	}
	rounds(map[ledger.RoundState]int64{ledger.RoundDone: 3, ledger.RoundFailed: 0, ledger.RoundOpen: 0})
}

// upgradeFailing: what fails already is known to do so since the first failure after the newest attempt that
// completed or cancelled it.
func upgradeFailing(t *testing.T, old Older) {
	at := func(second int) string { return old.Moment(time.Unix(int64(second), 0)) }
	old.Exec(`INSERT INTO ledger_kinds (kind) VALUES ('k')`)
	for i, outcomes := range [][]int{{0, 2, 3, 7}, {2, 2, 0}, {2, 5, 6, 8}, {8, 4}, {3}} {
		id := i + 1
		old.Exec(fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', '%d', %d, %s)`, id,
			scheduler.Slot(fmt.Sprint(id)), at(1)))
		for n, outcome := range outcomes {
			old.Exec(fmt.Sprintf(`INSERT INTO ledger_attempts (item_id, kind, attempt, epoch, agent, leased_at, finished_at,
				outcome, final) VALUES (%d, 'k', %d, 1, 'x', %[3]s, %[3]s, %d, false)`, id, n+1, at(n+1), outcome))
		}
	}
	l := old.Open()
	for i, want := range []int64{2, 0, 3, 1, 0} {
		it, err := l.Get(t.Context(), int64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if got := it.FailingSince; want == 0 != got.IsZero() || want > 0 && got.Unix() != want || !it.RecoveredAt.IsZero() {
			t.Errorf("item %d is failing since %s, recovered at %s; want %d s", it.ID, got, it.RecoveredAt, want)
		}
	}
}
