package lockable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/lockable"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// database makes a database of a program's own.
func database(statements ...string) (db *sql.DB, done func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "own.db")+"?_pragma=journal_mode(WAL)"); err != nil {
		log.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			log.Fatal(err)
		}
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }
}

// Editors share the articles that are to be reviewed: each gets no more than two, the newest first, and
// the same ones again when the page is reloaded.
func Example() {
	ctx := context.Background()
	db, done := database(
		`CREATE TABLE article (id INTEGER PRIMARY KEY, title TEXT, date_imported DATETIME, reviewed BOOLEAN DEFAULT 0, locked_by INTEGER, expires_at DATETIME)`,
		`CREATE INDEX article_expires_at ON article (expires_at)`,
		`INSERT INTO article (title, date_imported) VALUES ('Harvest', '2026-11-18'), ('Bridge', '2026-11-19'), ('Tram', '2026-11-20')`)
	defer done()

	type Article struct {
		ID    int64  `db:"id,key"`
		Title string `db:"title"`
	}
	desk, err := lockable.New[Article](ctx, sqlite.Wrap(db), lockable.Table{Name: "article", Where: "reviewed = 0",
		OrderBy: "date_imported DESC"})
	if err != nil {
		log.Fatal(err)
	}
	const ann, bob = 1, 2 // ids of users
	for _, user := range []int{ann, bob, ann} {
		articles, err := desk.Claim(ctx, user, 2)
		if err != nil {
			log.Fatal(err)
		}
		for _, a := range articles {
			fmt.Println("user", user, "reviews", a.Row.Title)
		}
	}
	mine, _ := desk.Claim(ctx, ann, 1)
	if err := desk.Finish(ctx, ann, mine[0], map[string]any{"reviewed": true}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("user 2 finishes it, too:", errors.Is(desk.Finish(ctx, bob, mine[0], nil), ledger.ErrLeaseLost))
	// Output:
	// user 1 reviews Tram
	// user 1 reviews Bridge
	// user 2 reviews Harvest
	// user 1 reviews Tram
	// user 1 reviews Bridge
	// user 2 finishes it, too: true
}

// The table has a key of several columns, integers for times, and a token. The token tells an expired claim from the
// claim that has the row now, even if both agents have the same name.
func ExampleClaimer_Finish() {
	ctx := context.Background()
	db, done := database(
		`CREATE TABLE photo (album TEXT, no INTEGER, width INTEGER, worker TEXT, until INTEGER, token TEXT, PRIMARY KEY (album, no))`,
		`CREATE INDEX photo_until ON photo (until)`,
		`INSERT INTO photo (album, no) VALUES ('kittens', 1), ('kittens', 2), ('trams', 1)`)
	defer done()

	type Photo struct {
		Album string `db:"album,key"`
		No    int    `db:"no,key"`
	}
	photos, err := lockable.New[Photo](ctx, sqlite.Wrap(db), lockable.Table{Name: "photo", LockedBy: "worker",
		ExpiresAt: "until", LockID: "token",
		Where: "width IS NULL AND album <> ?", Args: []any{"trams"}})
	if err != nil {
		log.Fatal(err)
	}
	claimed, err := photos.Claim(ctx, "resizer", 10)
	if err != nil {
		log.Fatal(err)
	}
	db.Exec(`UPDATE photo SET until = 1 WHERE no = 2`) // two hours pass
	if _, err := photos.Claim(ctx, "resizer", 10); err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		err := photos.Finish(ctx, "resizer", c, map[string]any{"width": 800})
		fmt.Println(c.Row.Album, c.Row.No, err)
	}
	// Output:
	// kittens 1 <nil>
	// kittens 2 lockable: finish "main"."photo" [kittens 2]: lease lost
}
