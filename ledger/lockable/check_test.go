package lockable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/lockable"
)

// odd are names that would be something else if they were not quoted.
type odd struct {
	Group  string `db:"group,key"`
	Quote  int64  `db:"a \"b\"; -- c,key"`
	Ümlaut string `db:"Größe, '%s' ?"`
}

// TestOddNames: statements work with any names.
func TestOddNames(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for i, table := range []string{`select`, `Mixed Case`, `with"quote`, `dots.in.it`, `Übergröße`, `o'clock`, `$1 ?`,
			`100%s`} {
			quoted := `"` + strings.ReplaceAll(table, `"`, `""`) + `"`
			statement := `CREATE TABLE ` + quoted +
				` ("group" varchar(20) NOT NULL, "a ""b""; -- c" bigint NOT NULL, "Größe, '%s' ?" text,
 "locked by ?" text, "EXPIRES-at" timestamptz, "lock""id" varchar(36), PRIMARY KEY ("a ""b""; -- c", "group"))`
			p.raw(statement)
			p.raw(`INSERT INTO ` + quoted +
				` ("group", "a ""b""; -- c", "Größe, '%s' ?") VALUES ('x', 1, 'first'), ('x', 2, 'second'), ('y', 1, 'third')`)
			claims := claimer[odd](t, p, lockable.Table{
				Name: table, LockedBy: "locked by ?", ExpiresAt: "EXPIRES-at", LockID: `lock"id`,
				Where: `"Größe, '%s' ?" <> ? AND 'it''s ?' <> '"' -- all`, Args: []any{"third"},
				OrderBy: `"a ""b""; -- c" DESC`})
			got, err := claims.Claim(t.Context(), "o'neill; --", 5)
			if err != nil || len(got) != 2 || got[0].Row.Ümlaut != "second" || got[1].Row.Quote != 1 {
				t.Fatalf("%d %s: %+v, %v", i, table, got, err)
			}
			if n, err := claims.Extend(t.Context(), "o'neill; --", got...); n != 2 || err != nil {
				t.Errorf("%s: extended %d, %v", table, n, err)
			}
			if err := claims.Finish(t.Context(), "o'neill; --", got[0],
				map[string]any{"Größe, '%s' ?": "x'); DROP TABLE y; --"}); err != nil {
				t.Errorf("%s: %v", table, err)
			}
			if n, err := claims.Release(t.Context(), "o'neill; --", got...); n != 1 || err != nil {
				t.Errorf("%s: released %d, %v", table, n, err)
			}
		}
	})
}

// raw runs a statement without the replacements of do.
func (p *place) raw(statement string) {
	p.Helper()
	if p.sqlite() {
		statement = strings.ReplaceAll(statement, "timestamptz", "TIMESTAMP")
	}
	if _, err := p.Exec(p.Context(), statement); err != nil {
		p.Fatalf("%v\n%s", err, statement)
	}
}

// TestQualified: the name of the table, and columns in its condition, may be qualified by the schema.
func TestQualified(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		if p.sqlite() {
			p.raw(articleTable[:strings.Index(articleTable, "(")] + "(id INTEGER PRIMARY KEY, title text, reviewed int " +
				"DEFAULT 0, date_imported text, locked_by text, expires_at INTEGER)")
			p.raw(`INSERT INTO article (title) VALUES ('a')`)
			table := review
			table.Schema, table.Where = "main", "article.reviewed = 0 AND main.article.id > 0"
			claims(t, claimer[article](t, p, table), "ann", 1, 1)
			return
		}
		schema := one[string](p, "SELECT current_schema()::text")
		articles(p, 1)
		table := review
		table.Schema, table.Where = schema, "article.reviewed = false AND "+schema+".article.id > 0"
		claims(t, claimer[article](t, p, table), "ann", 1, 1)
	})
}

type wrongKey struct {
	Title string `db:"title,key"`
}

type keyless struct {
	Title string `db:"title"`
}

type stranger struct {
	ID   int64  `db:"id,key"`
	Name string `db:"name"`
}

func rejected[R any](p *place, t lockable.Table) error {
	_, err := lockable.New[R](p.Context(), p, t)
	return err
}

// TestChecks: the error of New names what is wrong with a table, and what to do.
func TestChecks(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		articles(p, 1)
		p.do(
			`CREATE TABLE strict_claims (id int PRIMARY KEY, locked_by text NOT NULL, expires_at timestamptz, when_ date, short varchar(20), tiny varchar(20), doubled int GENERATED ALWAYS AS (id * 2) STORED)`)
		p.do(`CREATE VIEW articles_view AS SELECT * FROM article`)
		change := func(name string, edit func(*lockable.Table)) lockable.Table {
			t := review
			t.Name = name
			edit(&t)
			return t
		}
		for _, c := range []struct {
			name    string
			err     error
			message string
		}{
			{"no table", rejected[article](p, change("artikel", func(t *lockable.Table) {})), "no table artikel"},
			{"no name", rejected[article](p, lockable.Table{}), "is required"},
			{"qualified", rejected[article](p, change("main.article", func(t *lockable.Table) {})), "stands in Schema"},
			{"view", rejected[article](p, change("articles_view", func(t *lockable.Table) {})),
				"name the table that holds them"},
			{"no column", rejected[article](p, change("article", func(t *lockable.Table) { t.LockedBy = "editor" })),
				`ADD COLUMN "editor" text`},
			{"no expiry", rejected[article](p, change("article", func(t *lockable.Table) { t.ExpiresAt = "until" })),
				`ADD COLUMN "until"`},
			{"text expiry", rejected[article](p, change("article", func(t *lockable.Table) { t.ExpiresAt = "reviewed" })),
				"must be"},
			{"date", rejected[stranger](p, change("strict_claims", func(t *lockable.Table) {
				t.LockedBy, t.ExpiresAt = "short", "when_"
			})), "must be"},
			{"agent", rejected[article](p, change("article", func(t *lockable.Table) { t.LockedBy = "expires_at" })),
				"text or integers"},
			{"boolean agent", rejected[article](p, change("article", func(t *lockable.Table) { t.LockedBy = "reviewed" })),
				"text or integers"},
			{"twice", rejected[article](p, change("article", func(t *lockable.Table) { t.LockID = "locked_by" })), "used twice"},
			{"not null", rejected[stranger](p, change("strict_claims", func(t *lockable.Table) {})), "NOT NULL"},
			{"generated", rejected[stranger](p, change("strict_claims", func(t *lockable.Table) { t.LockedBy = "doubled" })),
				"generated"},
			{"token", rejected[article](p, change("article", func(t *lockable.Table) { t.LockID = "reviewed" })), "uuid"},
			{"no key", rejected[keyless](p, review), "column,key"},
			{"wrong key", rejected[wrongKey](p, review), "no primary key or unique index"},
			{"no such field", rejected[stranger](p, review), `no column "name"`},
			{"not a struct", rejected[int](p, review), "must be a struct"},
			{"arguments", rejected[article](p, change("article", func(t *lockable.Table) { t.Where = "reviewed = ?" })),
				"1 placeholders"},
			{"too many", rejected[article](p, change("article", func(t *lockable.Table) { t.Args = []any{1} })),
				"there are 1 Args"},
			{"more", rejected[article](p, change("article", func(t *lockable.Table) { t.Where = "1 = 1; DROP TABLE article" })),
				"cannot be claimed from"},
			{"open", rejected[article](p, change("article", func(t *lockable.Table) { t.Where = "title = 'x" })),
				"cannot be claimed from"},
			{"numbered", rejected[article](p, change("article", func(t *lockable.Table) { t.Where = "id = $1" })),
				"without a number"},
			{"syntax", rejected[article](p, change("article", func(t *lockable.Table) { t.Where = "reviewed = = 1" })),
				"cannot be claimed from"},
			{"order", rejected[article](p, change("article", func(t *lockable.Table) { t.OrderBy = "importance DESC" })),
				"cannot be claimed from"},
			{"order's arguments", rejected[article](p, change("article", func(t *lockable.Table) { t.OrderBy = "id = ?" })),
				"0 Args"},
			{"ttl", rejected[article](p, change("article", func(t *lockable.Table) { t.TTL = time.Millisecond })), "ttl"},
		} {
			if !errors.Is(c.err, ledger.ErrInvalid) || !strings.Contains(c.err.Error(), c.message) {
				t.Errorf("%s: %v", c.name, c.err)
			}
		}
		if n := one[int64](p, `SELECT count(*) FROM article WHERE locked_by IS NULL`); n != 1 {
			t.Error("a check has claimed")
		}
		short := change("strict_claims", func(t *lockable.Table) { t.LockedBy, t.LockID = "short", "tiny" })
		// SQLite does not keep to lengths
		if err := rejected[wrongKey](p, short); p.sqlite() == strings.Contains(fmt.Sprint(err), "at least 36") {
			t.Errorf("short token: %v", err)
		}
		// A database that does not answer is no mistake in the table.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := lockable.New[article](gone, p, review); err == nil || errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

// TestForeignTimes: SQLite keeps any value in any column; a claim in another form than ours is refused.
func TestForeignTimes(t *testing.T) {
	for declared, values := range map[string]map[string]bool{
		"TIMESTAMP": {"NULL": true, "'2026-11-20 17:00:00'": true, "'2026-11-20T17:00:00Z'": false, "1790000000": false,
			"'soon'": false, "'2026-11-20 19:00:00+02:00'": false, "'2026-11-20 12:00:00 -0500 EST'": false,
			"'2026-11-20 17:00:00.5+00:00'": true, "'2026-11-20 17:00:00 +0000 UTC'": true},
		"TEXT":    {"'2026-11-20 17:00:00.123'": true, "1790000000": false, "'2026-11-20'": false},
		"INTEGER": {"1790000000": true, "'2026-11-20 17:00:00'": false, "1.5": false},
	} {
		for value, good := range values {
			p := open(t, empty(t, "sqlite"))
			p.raw(`CREATE TABLE article (id INTEGER PRIMARY KEY, title text, locked_by text, expires_at ` + declared + `)`)
			p.raw(`INSERT INTO article (title, locked_by, expires_at) VALUES ('a', 'ann', ` + value + `)`)
			err := rejected[article](p, lockable.Table{Name: "article", Logger: silent})
			if good != (err == nil) || err != nil && !errors.Is(err, ledger.ErrInvalid) {
				t.Errorf("%s in a column of type %s: %v", value, declared, err)
			}
		}
	}
}

// TestHint: New logs how to make the index on expires_at if there is none.
func TestHint(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.do(articleTable)
		var log bytes.Buffer
		table := review
		table.Logger = slog.New(slog.NewTextHandler(&log, nil))
		claimer[article](t, p, table)
		advice := regexp.MustCompile(`CREATE INDEX .*\)`).FindString(strings.ReplaceAll(log.String(), `\"`, `"`))
		if advice == "" {
			t.Fatalf("logged %q", log.String())
		}
		p.do(advice)
		log.Reset()
		if claimer[article](t, p, table); log.Len() > 0 {
			t.Errorf("logged %q", log.String())
		}
	})
}

// everything has a column of each kind that may be a key or a value.
type everything struct {
	ID      string     `db:"id,key"`
	At      time.Time  `db:"at,key"`
	Amount  float64    `db:"amount,key"`
	Raw     []byte     `db:"raw,key"`
	Flag    bool       `db:"flag"`
	Day     *time.Time `db:"day"`
	Nothing *string    `db:"remark"`
	Doubled int        `db:"doubled"`
}

// TestTypes: keys and values of any type, generated columns, rows with NULL in the key.
func TestTypes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		types := strings.NewReplacer("UUID", "uuid", "BYTES", "bytea", "AMOUNT", "double precision", "FLAG", "boolean")
		if p.sqlite() {
			types = strings.NewReplacer("UUID", "text", "BYTES", "blob", "AMOUNT", "real", "FLAG", "boolean")
		}
		p.do(types.Replace(`CREATE TABLE stuff (id UUID, at timestamptz, amount AMOUNT, raw BYTES, flag FLAG, day timestamptz,
 remark text, n int DEFAULT 1, doubled int GENERATED ALWAYS AS (n * 2) STORED, locked_by int, expires_at int,
 UNIQUE (id, at, amount, raw))`))
		c := claimer[everything](t, p, lockable.Table{Name: "stuff"})
		at := time.Date(2026, 11, 20, 17, 0, 0, 123000, time.UTC)
		insert := `INSERT INTO stuff (id, at, amount, raw, flag, day) VALUES ($1, $2, $3, $4, $5, $6)`
		for i := range 3 {
			p.do(insert, fmt.Sprintf("0e7a6a0c-6a5e-4a49-8f2b-1b8d5ec9a0%02d", i), at, 0.1, []byte{0, 255, byte(i)}, true, at)
		}
		p.do(`INSERT INTO stuff (flag) VALUES (true), (true)`)                            // a row could not be told from another
		p.do(insert, "0e7a6a0c-6a5e-4a49-8f2b-1b8d5ec9a099", at, 0.1, []byte{9}, nil, at) // a bool has no place for NULL
		got, err := c.Claim(t.Context(), 7, 10)
		if err != nil || len(got) != 3 {
			t.Fatalf("got %+v, %v", got, err)
		}
		want := everything{ID: "0e7a6a0c-6a5e-4a49-8f2b-1b8d5ec9a001", At: at, Amount: 0.1, Raw: []byte{0, 255, 1},
			Flag: true, Day: &at, Doubled: 2}
		if diff := cmp.Diff(want, got[1].Row); diff != "" {
			t.Error(diff)
		}
		must.OK(t, c.Finish(t.Context(), 7, got[1], map[string]any{"n": 4, "remark": nil, "flag": false}))
		if n, err := c.Release(t.Context(), 7, got...); n != 2 || err != nil {
			t.Errorf("released %d, %v", n, err)
		}
	})
}

// TestNull: a row is passed over only if the driver cannot scan its NULL into the field. The columns of the claim are
// no reason to pass over a row: Claim fills them.
func TestNull(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.do(`CREATE TABLE docs (id int PRIMARY KEY, doc jsonb, locked_by text, expires_at timestamptz, lock_id text)`)
		p.do(`INSERT INTO docs (id, doc) VALUES (1, NULL), (2, $1)`, []byte(`{}`))
		type claim struct {
			By    string    `db:"locked_by"`
			Until time.Time `db:"expires_at"`
			Token string    `db:"lock_id"`
		}
		takesDocs[struct {
			ID  int    `db:"id,key"`
			Doc string `db:"doc"`
			claim
		}](p, 1)
		want := 1
		if !strings.HasPrefix(p.url, "sql") { // database/sql takes NULL for []byte alone
			want = 2
		}
		takesDocs[struct {
			ID  int             `db:"id,key"`
			Doc json.RawMessage `db:"doc"`
		}](p, want)
	})
}

func takesDocs[R any](p *place, want int) {
	c, err := lockable.New[R](p.Context(), p, lockable.Table{Name: "docs", LockID: "lock_id",
		Logger: slog.New(slog.DiscardHandler)})
	must.OK(p, err)
	got, err := c.Claim(p.Context(), "ann", 10)
	if err != nil || len(got) != want {
		p.Errorf("%d rows of %T, %v; want %d", len(got), *new(R), err, want)
	}
	must.Do(p)(c.Release(p.Context(), "ann", got...))
}

// foreign is a connection to a database that the package does not know.
type foreign struct{ ledger.Conn }

func (foreign) Dialect() string { return "mysql" }

// TestUnknownDialect: a connection to another database is refused, and not taken for one of those that are known.
func TestUnknownDialect(t *testing.T) {
	_, err := lockable.New[odd](t.Context(), foreign{}, lockable.Table{Name: "article"})
	if !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error(), `"mysql"; rows can be claimed on postgres and sqlite`) {
		t.Errorf("%v", err)
	}
}
