// Command agents is a crawler that shares the pages of a table of one's own with others of its kind,
// on SQLite or Postgres, by package lockable. Fetching is pretended. See README.md.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/lockable"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// page is what a crawler is given.
type page struct {
	URL string `db:"url,key"`
}

// pages returns the rows to choose from, and the time of the lease.
var pages = lockable.Table{Name: "page", LockedBy: "crawler", ExpiresAt: "until", LockID: "lock_id",
	Where: "status IS NULL", TTL: 2 * time.Second}

func main() {
	db := flag.String("db", "sqlite:pages.db", "`URL` of the database: sqlite:PATH or postgres://…")
	fill := flag.Int("fill", 0, "make the table anew, with this many pages, and end")
	name := flag.String("agent", fmt.Sprint("crawler-", os.Getpid()), "`name` of this crawler")
	naive := flag.Bool("naive", false, "share them the wrong way: select, then mark")
	flag.Parse()
	if err := run(context.Background(), *db, *name, *fill, *naive); err != nil {
		fmt.Fprintln(os.Stderr, "agents:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, name string, fill int, naive bool) error {
	db, done, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer done()
	switch {
	case fill > 0:
		return create(ctx, db, fill)
	case naive:
		return crawlNaively(ctx, db, name)
	}
	return crawl(ctx, db, name)
}

// crawl claims pages until all are checked. Those of a crawler that died come back when their time is over.
func crawl(ctx context.Context, db ledger.Conn, name string) error {
	claimer, err := lockable.New[page](ctx, db, pages)
	if err != nil {
		return err
	}
	for {
		given, err := claimer.Claim(ctx, name, 5)
		if err != nil {
			return err
		}
		for _, g := range given {
			status := fetch(g.Row.URL)
			err := claimer.Finish(ctx, name, g, map[string]any{"status": status})
			if errors.Is(err, ledger.ErrLeaseLost) { // it took too long, and another agent has it
				continue
			}
			if err != nil {
				return err
			}
			fmt.Println(g.Row.URL, status, name)
		}
		if len(given) > 0 {
			continue
		}
		open, err := list(ctx, db, `SELECT url FROM page WHERE status IS NULL LIMIT 1`)
		if err != nil || len(open) == 0 {
			return err
		}
		<-time.After(200 * time.Millisecond) // others are at the rest
	}
}

// crawlNaively is the mistake: between the select and the mark others select the same.
func crawlNaively(ctx context.Context, db ledger.Conn, name string) error {
	for {
		given, err := list(ctx, db, `SELECT url FROM page WHERE status IS NULL AND crawler IS NULL ORDER BY url LIMIT 5`)
		if err != nil || len(given) == 0 {
			return err
		}
		for _, url := range given {
			if err := do(ctx, db, `UPDATE page SET crawler = '`+name+`' WHERE url = '`+url+`'`); err != nil {
				return err
			}
		}
		for _, url := range given {
			status := fetch(url)
			if err := do(ctx, db, fmt.Sprintf(`UPDATE page SET status = %d WHERE url = '%s'`, status, url)); err != nil {
				return err
			}
			fmt.Println(url, status, name)
		}
	}
}

// fetch takes the time that a fast site takes to answer.
func fetch(url string) int {
	<-time.After(2 * time.Millisecond)
	if strings.HasSuffix(url, "7") {
		return 404
	}
	return 200
}

// create makes the table: the pages, and three columns to share them by.
func create(ctx context.Context, db ledger.Conn, n int) error {
	until := map[string]string{"sqlite": "INTEGER", "postgres": "timestamptz"}[db.Dialect()]
	for _, statement := range []string{
		`DROP TABLE IF EXISTS page`,
		`CREATE TABLE page (url text PRIMARY KEY, status int, crawler text, until ` + until + `, lock_id text)`,
		`CREATE INDEX page_until ON page (until)`,
	} {
		if err := do(ctx, db, statement); err != nil {
			return err
		}
	}
	values := []string{}
	for i := range n {
		values = append(values, fmt.Sprintf("('https://site-%d.example/%d')", i%10, i))
	}
	return do(ctx, db, `INSERT INTO page (url) VALUES `+strings.Join(values, ", "))
}

func do(ctx context.Context, db ledger.Conn, statement string) error {
	_, err := db.Exec(ctx, statement)
	return err
}

func list(ctx context.Context, db ledger.Conn, query string) (urls []string, err error) {
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var url string
		if err := rows.Scan(&url); err != nil {
			return nil, err
		}
		urls = append(urls, url)
	}
	return urls, rows.Err()
}

// open opens the program's own database; a ledger is not needed. On SQLite each statement waits for the others.
func open(ctx context.Context, url string) (ledger.Conn, func(), error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)")
		if err != nil {
			return nil, nil, err
		}
		return sqlite.Wrap(db), func() { db.Close() }, nil
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	return postgres.Wrap(pool), pool.Close, nil
}
