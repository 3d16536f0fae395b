package postgres

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/storetest"
	"github.com/ledgerd/ledgerd/schema"
)

func TestExamine(t *testing.T) {
	ctx, where := t.Context(), pgtest.URL(t)
	o := Options{Schema: pgtest.Schema(t)}
	all, sound := Examine(ctx, where, o)
	if storetest.Finds(t, all, "schema", finding.LevelProblem, "no ledger in", "make one\nmigrate"); sound {
		t.Error("no ledger is sound")
	}
	for _, f := range all { // its tables are not there
		if f.Level != finding.LevelOK && f.Check != "schema" && f.Check != "durability" {
			t.Errorf("of no ledger: %+v", f)
		}
	}
	if have, _, err := Status(ctx, where, o); have != 0 || err != nil {
		t.Errorf("it was made by the look: schema %d, %v", have, err)
	}
	if _, _, err := Migrate(ctx, where, o); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Pool(t)
	var fsync string
	must.OK(t, pool.QueryRow(ctx, "SHOW fsync").Scan(&fsync))
	if all, sound = Examine(ctx, where, o); !sound {
		t.Error("a new ledger is not sound")
	}
	storetest.Finds(t, all, "database", finding.LevelOK, "answers")
	storetest.Finds(t, all, "schema", finding.LevelOK)
	storetest.Finds(t, all, "clock", finding.LevelOK)
	storetest.Finds(t, all, "autovacuum", finding.LevelOK)
	storetest.Finds(t, all, "grants", finding.LevelOK)
	storetest.Finds(t, all, "connections", finding.LevelOK)
	storetest.Finds(t, all, "notifications", finding.LevelOK, "LISTEN works: workers hear")
	storetest.Finds(t, all, "statements", finding.LevelOK, "are prepared once")
	storetest.Finds(t, all, "durability", map[string]finding.Level{"on": finding.LevelOK,
		"off": finding.LevelProblem}[fsync])

	address, err := url.Parse(where)
	must.OK(t, err)
	query := address.Query()
	query.Set("default_transaction_read_only", "on")
	address.RawQuery = query.Encode()
	all, _ = Examine(ctx, address.String(), o)
	storetest.Finds(t, all, "server", finding.LevelProblem, "transactions may only read")

	must.Do(t)(pool.Exec(ctx, "ALTER TABLE "+o.Schema+".ledger_items SET (autovacuum_enabled = false)"))
	all, _ = Examine(ctx, where, o)
	storetest.Finds(t, all, "autovacuum", finding.LevelProblem, "ledger_items", "RESET (autovacuum_enabled)")

	all, _ = Examine(ctx, pgtest.Bouncer(t, where), o)
	storetest.Finds(t, all, "notifications", finding.LevelWarning,
		"LISTEN gets nothing, through a pooler: new items are found by polling")
	storetest.Finds(t, all, "statements", finding.LevelOK, "nothing is prepared through a pooler")
	storetest.Finds(t, all, "grants", finding.LevelOK)

	all, sound = Examine(ctx, pgtest.BouncerIn(t, "statement", where), o)
	storetest.Finds(t, all, "database", finding.LevelProblem, "allows no transactions", "set its pool_mode to transaction or session")
	if sound {
		t.Error("it cannot be worked without transactions")
	}
}

func TestExamineFindsOpenTransactions(t *testing.T) {
	pool := pgtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	must.OK(t, err)
	defer tx.Rollback(t.Context())
	var pid string
	must.OK(t, tx.QueryRow(t.Context(), "SELECT 'pid ' || pg_backend_pid() FROM pg_class, txid_current() LIMIT 1").Scan(
		&pid))
	rows, err := pool.Query(t.Context(), strings.Replace(readPins, "LIMIT 5", "", 1))
	must.OK(t, err)
	pins, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pin])
	i := slices.IndexFunc(pins, func(p pin) bool { return p.Who == pid })
	if err != nil || i < 0 {
		t.Fatalf("%s is not among %+v, %v", pid, pins, err)
	}
	p := pins[i]
	if f := p.judge(); f.Level != finding.LevelOK || p.State != "idle in transaction" {
		t.Errorf("%+v: %+v", p, f)
	}
	for age, level := range map[time.Duration]finding.Level{59 * time.Second: finding.LevelOK,
		time.Minute: finding.LevelWarning, time.Hour: finding.LevelProblem} {
		if p.Age = age.Seconds(); p.judge().Level != level {
			t.Errorf("after %s: %+v", age, p.judge())
		}
	}
	storetest.Finds(t, []finding.Finding{p.judge()}, "horizon", p.judge().Level)
	p.Age = 7200
	storetest.Finds(t, []finding.Finding{p.judge()}, "horizon", finding.LevelProblem, "open for 2h0m0s: "+pid,
		"idle in transaction",
		"pg_terminate_backend("+strings.TrimPrefix(pid, "pid ")+")")
	forgotten := pin{Age: 90, Who: "prepared transaction x", User: "bob", State: "prepared"}
	storetest.Finds(t, []finding.Finding{forgotten.judge()}, "horizon",
		finding.LevelWarning, "ROLLBACK PREPARED", "prepared transaction x of bob waits for its commit since 1m30s")
	if f := (pin{Age: 12, Who: "replication slot x", State: "slot"}).judge(); f.Level != finding.LevelOK {
		t.Errorf("a standby that follows: %+v", f)
	}
	storetest.Finds(t, []finding.Finding{pin{Age: 12, Who: "replication slot x", Program: "physical",
		State: "unused slot"}.judge()}, "horizon", finding.LevelWarning, "12 transactions back", "pg_drop_replication_slot")
}

func TestExamineClock(t *testing.T) {
	for _, c := range []struct {
		skew, off time.Duration
		level     finding.Level
		message   string
	}{
		{0, time.Millisecond, finding.LevelOK, "1ms at most"},
		{-1900 * time.Millisecond, time.Millisecond, finding.LevelOK, "1.901s"},
		{-3 * time.Second, time.Millisecond, finding.LevelWarning, "3s ahead of the database's"},
		{3 * time.Second, time.Millisecond, finding.LevelWarning, "3s behind the database's"},
		{3 * time.Second, 2 * time.Second, finding.LevelOK, ""}, // it cannot be known
	} {
		storetest.Finds(t, []finding.Finding{judgeClock(c.skew, c.off)}, "clock", c.level, c.message)
	}
}

func TestExamineWithoutServer(t *testing.T) {
	all, sound := Examine(t.Context(), "postgres://app:geheim@127.0.0.1:1/work", Options{})
	storetest.Finds(t, all, "database", finding.LevelProblem, "cannot reach the ledger", "is Postgres running")
	if sound || len(all) != 1 || strings.Contains(all[0].What+all[0].Fix, "geheim") {
		t.Errorf("%+v", all)
	}
}

// A privilege that is missing is named as the statement that gives it.
func TestExamineGrants(t *testing.T) {
	ctx, super := t.Context(), pgtest.Database(t)
	pool, err := connectPool(ctx, super)
	must.OK(t, err)
	defer pool.Close()
	if _, _, err := Migrate(ctx, super, Options{Schema: "work"}); err != nil {
		t.Fatal(err)
	}
	role := "watcher_" + strings.ToLower(strings.TrimPrefix(t.Name(), "Test")) + "_" +
		strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "_")
	must.Do(t)(pool.Exec(ctx, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'; "+
		strings.Join(Grants("work", role, schema.Operator), "")+" REVOKE UPDATE, DELETE ON work.ledger_backlog FROM "+role))
	defer pool.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	u, err := url.Parse(super)
	must.OK(t, err)
	u.User = url.UserPassword(role, "x")
	var owner string
	must.OK(t, pool.QueryRow(ctx, "SELECT tableowner FROM pg_tables WHERE schemaname = 'work' LIMIT 1").Scan(&owner))
	all, _ := Examine(ctx, u.String(), Options{Schema: "work"})
	storetest.Finds(t, all, "grants", finding.LevelProblem, "the user "+role+" lacks privileges that the role operator needs",
		"as "+owner, `GRANT UPDATE, DELETE ON "work".ledger_backlog TO "`+role+`";`)
	must.Do(t)(pool.Exec(ctx, "GRANT UPDATE, DELETE ON work.ledger_backlog TO "+role+
		"; REVOKE USAGE ON SEQUENCE work.ledger_items_id_seq FROM "+role))
	all, _ = Examine(ctx, u.String(), Options{Schema: "work"})
	storetest.Finds(t, all, "grants", finding.LevelWarning, "the user "+role+" may not draw ids",
		`GRANT USAGE ON SEQUENCE "work".ledger_items_id_seq TO "`+role+`";`)
	must.Do(t)(pool.Exec(ctx, "DROP OWNED BY "+role+"; "+strings.Join(Grants("work", role, schema.Adder), "")+
		" REVOKE UPDATE ON work.ledger_items FROM "+role))
	all, _ = Examine(ctx, u.String(), Options{Schema: "work"})
	storetest.Finds(t, all, "grants", finding.LevelProblem, "the role adder needs", `GRANT UPDATE ON "work".ledger_items TO`)
	for _, f := range all {
		if f.Check == "database" && f.Level != finding.LevelOK {
			t.Errorf("an adder reads no locks and no journal: %+v", f)
		}
	}
	must.Do(t)(pool.Exec(ctx, strings.Join(Grants("work", role, schema.Reader), "")+
		strings.Join(Grants("work", role, schema.Adder), "")))
	all, _ = Examine(ctx, u.String(), Options{Schema: "work"})
	storetest.Finds(t, all, "grants", finding.LevelOK, "has what these roles need: reader, adder")
	storetest.Finds(t, all, "horizon", finding.LevelWarning, "does not see what other users' sessions do", "GRANT pg_read_all_stats")
}

// The search path is that of the URL, in a session that is ours alone. Behind a pooler,
// where others have it next, it stays as it is.
func TestSearchPathStaysInSessionsOfOurOwn(t *testing.T) {
	direct, name := pgtest.URL(t), pgtest.Schema(t)
	path := func(base string) (path string) {
		t.Helper()
		u, err := url.Parse(base)
		must.OK(t, err)
		q := u.Query()
		q.Set("search_path", name+",public")
		u.RawQuery = q.Encode()
		pool, err := connectPool(t.Context(), u.String())
		must.OK(t, err)
		defer pool.Close()
		must.OK(t, pool.QueryRow(t.Context(), "SELECT current_setting('search_path')").Scan(&path))
		return path
	}
	if got := path(direct); got != name+",public" {
		t.Errorf("at the server: %s", got)
	}
	if got := path(pgtest.Bouncer(t, direct)); strings.Contains(got, name) {
		t.Errorf("behind a pooler: %s", got)
	}
}
