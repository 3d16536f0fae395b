package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

// Damage of the files of a table and of an index is found. A call that meets it has an error of its own, and a worker
// does not wait for that to go away.
func TestIntegrity(t *testing.T) {
	ctx, server := t.Context(), pgtest.Start(t, pgtest.Options{})
	o := Options{Schema: "public"}
	store, err := Connect(ctx, server.URL(), o)
	must.OK(t, err)
	l := ledger.New(store, ledger.Options{})
	var items []ledger.NewItem
	for i := range 300 {
		items = append(items, ledger.NewItem{Kind: "k", Key: strings.Repeat("k", 20) + time.Duration(i).String()})
	}
	must.Do(t)(l.Add(ctx, items...))
	f := Integrity(ctx, server.URL(), o)
	storetest.Finds(t, []finding.Finding{f}, "integrity", finding.LevelWarning, "no extension amcheck", "no checksums",
		"CREATE EXTENSION")

	var data, table, index string
	var number int // of the version of Postgres
	query(t, server.URL(), "CREATE EXTENSION amcheck")
	query(t, server.URL(), `SELECT current_setting('data_directory'), current_setting('server_version_num')::int,
 pg_relation_filepath('ledger_items'), pg_relation_filepath(indexrelid) FROM pg_index WHERE indrelid = 'ledger_backlog'::regclass AND indisprimary`,
		&data, &number, &table, &index)
	order, damaged := "every table and index in order", "ledger_items, page 0"
	if number < 140000 { // amcheck reads no tables
		order, damaged = "every index in order", "ledger_backlog_pkey: "
	}
	f = Integrity(ctx, server.URL(), o)
	storetest.Finds(t, []finding.Finding{f}, "integrity", finding.LevelOK, order)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if f := Integrity(gone, server.URL(), o); f.Level == finding.LevelProblem && strings.Contains(f.Why, "damaged") {
		t.Errorf("a look that ended early: %+v", f)
	}
	must.OK(t, errors.Join(l.Close(), server.Stop()))
	damage(t, filepath.Join(data, table), 60) // within the line pointers of the first page
	for page := range int64(2) {
		damage(t, filepath.Join(data, index), (page+1)*8192+12) // the head of a page with entries
	}
	must.OK(t, server.StartAgain())
	f = Integrity(ctx, server.URL(), o)
	storetest.Finds(t, []finding.Finding{f}, "integrity", finding.LevelProblem, damaged, "ledger_backlog_pkey: ",
		"restore a backup")

	blocker, err := pgx.Connect(ctx, server.URL())
	must.OK(t, err)
	defer blocker.Close(ctx)
	must.Do(t)(blocker.Exec(ctx, "BEGIN; LOCK TABLE ledger_journal")) // a table that is looked at later
	inTime, giveUp := context.WithCancel(ctx)
	look := make(chan finding.Finding, 1)
	go func() { look <- Integrity(inTime, server.URL(), o) }()
	for began, waits := time.Now(), false; !waits; <-time.After(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the look does not wait for the lock")
		}
		query(t, server.URL(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'verify_heapam|bt_index_check')`, &waits)
	}
	giveUp()
	storetest.Finds(t, []finding.Finding{<-look}, "integrity", finding.LevelProblem, damaged)
	must.Do(t)(blocker.Exec(ctx, "ROLLBACK"))

	store, err = Connect(ctx, server.URL(), o)
	must.OK(t, err)
	l = ledger.New(store, ledger.Options{})
	defer l.Close()
	_, err = l.Add(ctx, ledger.NewItem{Kind: "k", Key: "new"})
	if !errors.Is(err, ledger.ErrDamaged) || ledger.Hint(err) == "" {
		t.Errorf("%v; %s", err, ledger.Hint(err))
	}
}

func damage(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xfe, 0xff}, at) // as a line pointer: a row that begins at 32767
		err = errors.Join(err, f.Close())
	}
	must.OK(t, err)
}

func query(t *testing.T, url, statement string, into ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must.OK(t, err)
	defer conn.Close(t.Context())
	if len(into) == 0 {
		_, err = conn.Exec(t.Context(), statement)
	} else {
		err = conn.QueryRow(t.Context(), statement).Scan(into...)
	}
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
