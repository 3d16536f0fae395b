package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/schema"
)

// Limits from which a finding is reported.
const (
	skewed    = 2 * time.Second  // between two clocks
	pinned    = time.Minute      // a transaction that keeps dead rows …
	pinnedBad = time.Hour        // … and for how long it is a problem
	slotBack  = 100_000          // transactions that the slot of a standby that follows may be back
	hintWait  = 2 * time.Second  // for a notification
	examining = 30 * time.Second // for the whole examination
)

// Examine checks the ledger at a URL, its server, and the connection to it. It changes nothing, and
// creates no ledger. sound reports whether the ledger may be opened.
func Examine(ctx context.Context, url string, o Options) (all []finding.Finding, sound bool) {
	ctx, cancel := context.WithTimeout(ctx, examining)
	defer cancel()
	pool, err := connectPool(ctx, url)
	if err != nil {
		return []finding.Finding{sqlstore.Unusable("database", err)}, false
	}
	defer pool.Close()
	s, o, err := newStore(pool, o)
	if err != nil {
		return []finding.Finding{sqlstore.Unusable("database", err)}, false
	}
	defer s.end()
	began := time.Now()
	c, err := s.condition(ctx, s.pool, o.Schema)
	if err == nil {
		// It fails behind a pooler whose mode allows no transactions.
		err = pgx.BeginFunc(ctx, pool, func(pgx.Tx) error { return nil })
	}
	if err != nil {
		return []finding.Finding{sqlstore.Unusable("database", explain(ctx, s.name, err))}, false
	}
	all = append(all, finding.Fine("database", fmt.Sprintf("%s answers, with the connection in %s", s.name,
		time.Since(began).Round(time.Millisecond))))
	_, err = s.judge(c, Options{MustExist: true, Schema: o.Schema})
	sound = err == nil
	if sound {
		all = append(all, finding.Fine("schema", fmt.Sprintf("schema %d, which this program knows", c.have)))
	} else {
		all = append(all, sqlstore.Unusable("schema", err))
	}
	looks := []func(context.Context, *pgxpool.Pool) ([]finding.Finding, error){s.examineServer, s.examineCopies,
		s.examineClock}
	if !errors.Is(err, ledger.ErrNoLedger) {
		looks = append(looks, s.examineHome, s.examineSequences, s.examineHorizon, s.examineVacuum,
			s.examineGrants, s.examineHints)
	}
	for _, look := range looks {
		found, err := look(ctx, pool)
		if err != nil {
			found = []finding.Finding{finding.Warning("database", "an examination failed: "+explain(ctx, s.name, err).Error(),
				"this may hide a problem", "examine it again").By(act.Examine)}
		}
		all = append(all, found...)
	}
	return all, sound
}

// examineServer checks whether the server takes writes and keeps commits, and how many connections are in use.
func (s *Store) examineServer(ctx context.Context, pool *pgxpool.Pool) (all []finding.Finding, err error) {
	var version, fsync, pages, commit string
	var standby, reads bool
	var used, most int
	err = pool.QueryRow(ctx,
		`SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
 (SELECT sum(numbackends)::int FROM pg_stat_database), current_setting('max_connections')::int`).Scan(&version, &fsync, &pages, &commit, &standby, &reads, &used, &most)
	if err != nil {
		return nil, err
	}
	switch {
	case standby:
		all = append(all, finding.Problem("server", "it is a standby, which takes no writes",
			"nothing can be added or worked",
			"name the primary, or all servers: postgres://app@db1,db2/work"))
	case reads:
		all = append(all, finding.Problem("server", "transactions may only read (default_transaction_read_only = on)",
			"nothing can be added or worked",
			"switch it off where it was set: postgresql.conf, ALTER DATABASE, ALTER ROLE or the URL"))
	}
	switch {
	case fsync == "off" || pages == "off":
		all = append(all, finding.Problem("durability", fmt.Sprintf("fsync is %s, full_page_writes is %s", fsync, pages),
			"a power failure may damage the whole database",
			"switch both on in postgresql.conf and reload the server"))
	case commit == "off":
		all = append(all, finding.Warning("durability", "synchronous_commit is "+commit,
			"a crash of the server loses what was answered in the last fraction of a second: items are worked again",
			"ALTER ROLE … SET synchronous_commit = on, for the role that works the ledger"))
	default:
		all = append(all, finding.Fine("durability",
			fmt.Sprintf("Postgres %s, commits wait for the disk (synchronous_commit=%s)", version, commit)))
	}
	if what := fmt.Sprintf("%d of %d connections are in use", used, most); used*10 >= most*9 {
		all = append(all, finding.Warning("connections", what, "a worker that starts, or comes back after a failure, may "+
			"get none", "close some clients, use fewer per process (pool_max_conns in the URL), put PgBouncer before the "+
			"server, or raise max_connections"))
	} else {
		all = append(all, finding.Fine("connections", what))
	}
	return all, nil
}

// examineClock compares this machine's clock with the database's.
func (s *Store) examineClock(ctx context.Context, pool *pgxpool.Pool) ([]finding.Finding, error) {
	var now time.Time
	before := time.Now()
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return nil, err
	}
	took := time.Since(before)
	return []finding.Finding{judgeClock(now.Sub(before.Add(took/2)), took/2)}, nil
}

// judgeClock judges the skew, by which the database's clock is ahead. off is the error of its measurement.
func judgeClock(skew, off time.Duration) finding.Finding {
	if skew.Abs() <= skewed+off {
		return finding.Fine("clock", fmt.Sprintf("differs from the database's by %s at most",
			(skew.Abs()+off).Round(time.Millisecond)))
	}
	way := "behind"
	if skew < 0 {
		way = "ahead of"
	}
	return finding.Warning("clock", fmt.Sprintf("this machine's clock is %s %s the database's",
		skew.Abs().Round(10*time.Millisecond), way),
		"leases do not depend on it; times that are typed here and times in logs do",
		"keep both in step (timedatectl, chrony)")
}

// pin is something that keeps vacuum from removing dead rows.
type pin struct {
	Age                             float64 // in seconds; of a replication slot, in transactions
	Who, User, Program, From, State string
}

// readPins reads the oldest of the transactions with a snapshot or an id, of prepared ones, and of
// replication slots.
const readPins = `(SELECT coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8, 'pid ' || pid, coalesce(usename, '?'), coalesce(nullif(application_name, ''), backend_type), coalesce(client_addr::text, 'local'), coalesce(state, '?')
 FROM pg_stat_activity WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR starts_with(state, 'idle in transaction')) AND xact_start IS NOT NULL
  AND backend_type <> 'autovacuum worker' ORDER BY 1 DESC LIMIT 5)
 UNION ALL (SELECT extract(epoch FROM clock_timestamp() - prepared)::float8, 'prepared transaction ' || gid, owner::text, 'nobody', '', 'prepared' FROM pg_prepared_xacts WHERE database = current_database() ORDER BY 1 DESC LIMIT 5)
 UNION ALL (SELECT age(coalesce(xmin, catalog_xmin))::float8, 'replication slot ' || slot_name, '', coalesce(plugin, 'physical'), '', CASE WHEN active THEN 'slot' ELSE 'unused slot' END
  FROM pg_replication_slots WHERE xmin IS NOT NULL ORDER BY 1 DESC LIMIT 5)`

// examineHorizon looks for what keeps dead rows in the tables. It sees transactions of other users only with
// pg_read_all_stats.
func (s *Store) examineHorizon(ctx context.Context, pool *pgxpool.Pool) (all []finding.Finding, err error) {
	rows, err := pool.Query(ctx, readPins)
	if err != nil {
		return nil, err
	}
	pins, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pin])
	if err != nil {
		return nil, err
	}
	for _, p := range pins {
		if f := p.judge(); f.Level != finding.LevelOK {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		all = append(all, finding.Fine("horizon", "no transaction is open for longer than "+pinned.String()))
	}
	var sees bool
	err = pool.QueryRow(ctx, `SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`).Scan(&sees)
	if err == nil && !sees {
		all = append(all, finding.Warning("horizon", "this user does not see what other users' sessions do",
			"a long transaction of another user is not reported here", "GRANT pg_read_all_stats TO … (for this user)"))
	}
	return all, err
}

func (p pin) judge() finding.Finding {
	const why = "vacuum cannot remove what became dead since: claims slow down (up to 3 s per million items that ended " +
		"meanwhile), and tables grow"
	since := time.Duration(p.Age * float64(time.Second)).Round(time.Second)
	switch {
	case p.State == "slot" && p.Age < slotBack:
		return finding.Fine("horizon", p.Who)
	case strings.HasSuffix(p.State, "slot"):
		return finding.Warning("horizon", fmt.Sprintf("%s (%s, %s) is %.0f transactions back", p.Who, p.Program, p.State,
			p.Age), why, "have its consumer catch up, or drop it: SELECT pg_drop_replication_slot(…)")
	case since < pinned:
		return finding.Fine("horizon", p.Who)
	}
	what := fmt.Sprintf("a transaction has been open for %s: %s, %s by %s from %s, %s", since, p.Who, p.User, p.Program,
		p.From, p.State)
	fix := "end the transaction there; if it is forgotten: SELECT pg_terminate_backend(" + strings.TrimPrefix(p.Who,
		"pid ") + ")"
	if p.State == "prepared" {
		what = fmt.Sprintf("%s of %s waits for its commit since %s", p.Who, p.User, since)
		fix = "COMMIT PREPARED or ROLLBACK PREPARED it"
	}
	if since >= pinnedBad {
		return finding.Problem("horizon", what, why, fix)
	}
	return finding.Warning("horizon", what, why, fix)
}

// examineVacuum checks whether dead rows are removed.
func (s *Store) examineVacuum(ctx context.Context, pool *pgxpool.Pool) (all []finding.Finding, err error) {
	const why = "dead rows stay, so claims slow down and the tables grow"
	var on string
	if err := pool.QueryRow(ctx, "SELECT current_setting('autovacuum')").Scan(&on); err != nil {
		return nil, err
	}
	if on != "on" {
		all = append(all, finding.Problem("autovacuum", "autovacuum is off on this server", why,
			"autovacuum = on in postgresql.conf, and reload the server"))
	}
	rows, err := pool.Query(ctx,
		`SELECT c.relname::text, coalesce(s.n_dead_tup, 0), coalesce(s.n_live_tup, 0), coalesce(c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'], false)
 FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE quote_ident(nspname) = $1 OR '"' || nspname || '"' = $1) AND c.relkind = 'r' AND starts_with(c.relname::text, 'ledger_') ORDER BY 1`, s.schema)
	if err != nil {
		return nil, err
	}
	var table string
	var dead, live int64
	var off bool
	_, err = pgx.ForEachRow(rows, []any{&table, &dead, &live, &off}, func() error {
		switch {
		case off:
			all = append(all, finding.Problem("autovacuum", "autovacuum is switched off for "+table, why,
				fmt.Sprintf("ALTER TABLE %s.%s RESET (autovacuum_enabled)", s.schema, table)))
		case dead > 1_000_000 && dead > live:
			all = append(all, finding.Warning("autovacuum", fmt.Sprintf("%s has %d dead rows and %d live ones", table, dead,
				live), why, fmt.Sprintf("see the findings for horizon; if all are ok: VACUUM %s.%s, raise autovacuum_max_workers",
				s.schema, table)))
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		all = append(all, finding.Fine("autovacuum", "on"))
	}
	return all, err
}

// examineGrants looks for privileges that are missing.
func (s *Store) examineGrants(ctx context.Context, pool *pgxpool.Pool) ([]finding.Finding, error) {
	name := s.schemaName
	var user, owner string
	var usage bool
	err := pool.QueryRow(ctx,
		`SELECT current_user::text, coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
 coalesce((SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE relnamespace = n.oid AND relname = $2), 'the owner')
 FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = $1`, name, schema.Meta).Scan(&user, &usage, &owner)
	if err != nil {
		return nil, err
	}
	has := map[string][]string{} // by table
	for _, t := range allTables {
		rows, err := pool.Query(ctx, `SELECT p FROM pg_class c CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p
 WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relname = $2 AND has_table_privilege(c.oid, p)`, name, t.Name)
		if err == nil {
			has[t.Name], err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return nil, err
		}
	}
	whole, meant := rolesOf(has)
	var missing []string
	if meant != "" {
		missing = lacks(has, meant, s.schema, quote(user))
	}
	what := fmt.Sprintf("the user %s lacks privileges that the role %s needs", user, meant)
	if !usage {
		what = fmt.Sprintf("the user %s may not use the schema %s", user, name)
		missing = append(missing, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", s.schema, quote(user)))
	}
	if len(missing) > 0 {
		return []finding.Finding{finding.Problem("grants", what, "commands fail with \"permission denied\"",
			"as "+owner+", or for the role that the user has its privileges from: "+strings.Join(missing, " "))}, nil
	}
	if slices.Equal(whole, []schema.Role{schema.Reader}) {
		return []finding.Finding{finding.Fine("grants", "the user "+user+" may read, and may change nothing")}, nil
	}
	var draws bool
	err = pool.QueryRow(ctx,
		`SELECT NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relname = 'ledger_items_id_seq' AND NOT has_sequence_privilege(c.oid, 'USAGE'))`, name).Scan(&draws)
	if err != nil {
		return nil, err
	}
	if !draws {
		return []finding.Finding{finding.Warning("grants", "the user "+user+" may not draw ids before it adds items",
			"adding many items takes the server a quarter longer", "as "+owner+": "+grantIDs(s.schema, quote(user)))}, nil
	}
	return []finding.Finding{finding.Fine("grants", "the user "+user+" has what these roles need: "+join(whole))}, nil
}

// examineHints sends itself a notification, on a channel of its own. It also reports whether statements are
// prepared: behind a pooler, they are not.
func (s *Store) examineHints(ctx context.Context, pool *pgxpool.Pool) ([]finding.Finding, error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := c.Hijack() // it listens, so it does not go back to the pool
	defer conn.Close(context.WithoutCancel(ctx))
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return nil, err
	}
	between, statements := "", "claims are prepared once in each session"
	if pid != conn.PgConn().PID() {
		between, statements = ", through a pooler", "nothing is prepared through a pooler, so each claim costs the server more"
	}
	prepared := finding.Fine("statements", statements)
	channel := "ledgerd_doctor_" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(ctx, "LISTEN "+quote(channel)); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "SELECT pg_notify($1, '')", channel); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, hintWait)
	defer cancel()
	if _, err := conn.WaitForNotification(wait); err != nil {
		if wait.Err() == nil || ctx.Err() != nil {
			return nil, err
		}
		return []finding.Finding{prepared, finding.Warning("notifications", "LISTEN gets nothing"+between+
			": new items are found by polling",
			"an item that is added waits up to a second longer before it is worked; nothing else changes",
			"if that matters: name the server itself, or let PgBouncer pool sessions (pool_mode = session)")}, nil
	}
	return []finding.Finding{prepared,
		finding.Fine("notifications", "LISTEN works"+between+": workers hear of new items at once")}, nil
}
