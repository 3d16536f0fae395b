package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// address is where a ledger is.
type address struct {
	path   string // of an SQLite file; else …
	url    string // … of a Postgres database …
	schema string // … and the schema in it, "" for public
}

// String is the address as it may be shown: without a password.
func (d address) String() string {
	if d.path != "" {
		return "sqlite:" + d.path
	}
	return redact.Text(d.url)
}

// brief is the address as people read it.
func (d address) brief() string {
	if d.path == "" {
		return d.String()
	}
	return shortPath(d.path)
}

// shortPath is a path as people read it.
func shortPath(path string) string {
	if home, err := os.UserHomeDir(); err == nil {
		if rel, err := filepath.Rel(home, path); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join("~", rel)
		}
	}
	return path
}

// address says where the ledger is: --db, LEDGERD_DB, the config, or the file in the data directory.
func (a *app) address() (address, error) {
	if a.db == "" {
		dir, err := a.dataDir()
		return address{path: filepath.Join(dir, "ledger.db")}, err
	}
	return parseAddress(a.db, a.dbSource)
}

// parseAddress reads the URL of a ledger; source is where it is from, for errors.
func parseAddress(db, source string) (address, error) {
	scheme, rest, _ := strings.Cut(db, ":")
	switch {
	case scheme == "sqlite" && rest != "":
		path := strings.TrimPrefix(rest, "//")
		if after, ok := strings.CutPrefix(path, "~/"); ok { // the shell leaves it after a colon
			home, err := os.UserHomeDir()
			if err != nil {
				return address{}, err
			}
			path = filepath.Join(home, after)
		}
		abs, err := filepath.Abs(path)
		return address{path: abs}, err
	case scheme == "postgres" || scheme == "postgresql":
		u, err := url.Parse(db)
		if err != nil {
			return address{}, usage("bad_db", "it is postgres://user@host:5432/name; special characters of a password are written as %XX", "%s: not a Postgres URL", source)
		}
		schema, _, _ := strings.Cut(u.Query().Get("search_path"), ",")
		return address{url: db, schema: strings.TrimSpace(schema)}, nil
	}
	return address{}, usage("bad_db", "an SQLite file is sqlite:ledger.db, Postgres is postgres://user@host/name", "%s %q: not a database URL", source, redact.Text(db))
}

// dataDir is where ledgers and plugins of this user are.
func (a *app) dataDir() (string, error) {
	if a.config.DataDir != "" {
		return a.config.DataDir, nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ledgerd"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usage("no_home", "say where it is: --db sqlite:/path/to/ledger.db", "there is no home directory for the ledger: %v", err)
	}
	return filepath.Join(home, ".local", "share", "ledgerd"), nil
}

// opened is a ledger with what is known of it.
type opened struct {
	*ledger.Ledger
	store   ledger.Store // that the ledger is over
	address address
	isNew   bool
}

// open opens a ledger that must exist.
func (a *app) open(ctx context.Context) (*opened, error) {
	at, err := a.address()
	if err != nil {
		return nil, err
	}
	l, err := a.openAt(ctx, at, false)
	if err != nil {
		return nil, err
	}
	a.announce(l)
	return l, nil
}

// create opens a ledger, and makes it if there is none.
func (a *app) create(ctx context.Context) (*opened, error) {
	at, err := a.address()
	if err != nil {
		return nil, err
	}
	l, err := a.openAt(ctx, at, false)
	if errors.Is(err, ledger.ErrNoLedger) {
		if l, err = a.openAt(ctx, at, true); err == nil {
			l.isNew = true
		}
	}
	if err != nil {
		return nil, err
	}
	a.announce(l)
	return l, nil
}

// announce says which ledger is open.
func (a *app) announce(l *opened) {
	if a.quiet {
		return
	}
	line := "ledger: " + l.address.brief()
	if l.isNew {
		line += " (new)"
	}
	if a.config.File != "" {
		line += "   config: " + shortPath(a.config.File)
	}
	fmt.Fprintln(a.stderr, line)
	for _, w := range a.config.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s: %s%s\n", w.Where(), w.Message, prefixed("; ", w.Hint))
	}
}

func (a *app) openAt(ctx context.Context, at address, create bool) (*opened, error) {
	a.warnOfPassword()
	var store ledger.Store
	var err error
	if at.path != "" {
		if create {
			err = makeDir(filepath.Dir(at.path))
		}
		if err == nil {
			store, err = sqlite.Open(ctx, at.path, sqlite.Options{MustExist: !create})
		}
	} else {
		store, err = postgres.Connect(ctx, at.url, postgres.Options{Schema: at.schema, MustExist: !create})
	}
	if err != nil {
		return nil, a.explainOpen(at, err)
	}
	return &opened{Ledger: ledger.New(instrument(store), ledger.Options{Logger: a.logger()}), store: store, address: at}, nil
}

// makeDir makes the directory of a new ledger; what is in it is nobody else's business.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return fail(exitDenied, "denied", fmt.Sprintf("cannot make the folder %s for the ledger: %v", dir, errors.Unwrap(err)),
				"name a place that you may write to: --db sqlite:PATH")
		}
		return err
	}
	return nil
}

// explainOpen adds what the command line knows about a ledger that could not be opened.
func (a *app) explainOpen(at address, err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	f := explain(err)
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		f.message = "no ledger in " + at.brief()
		f.hint = "make one: " + a.migrateCommand() + "    (ls, show, stats never create one)"
	case errors.Is(err, ledger.ErrSchema):
		f.hint = strings.Replace(f.hint, migrateCommand, a.migrateCommand(), 1)
	case errors.Is(err, ledger.ErrDenied) && at.url != "":
		f.hint = prefixed("the URL is from ", a.dbSource) + "; better than a password there: PGPASSFILE, or a file that LEDGERD_DB_FILE, or db_file in the config, names"
	}
	return f
}

const migrateCommand = "ledgerd db migrate"

// migrateCommand is what makes or migrates this ledger, as one types it. What is in the
// environment stays there, and a password is not repeated.
func (a *app) migrateCommand() string {
	switch {
	case a.dbSource != dbFlag:
		return migrateCommand
	case redact.Text(a.db) != a.db:
		return migrateCommand + " with the same --db"
	}
	return migrateCommand + " --db " + quoteForShell(a.db)
}

// quoteForShell is a word as a POSIX shell takes it: in single quotes, unless it needs none.
func quoteForShell(word string) string {
	special := func(r rune) bool {
		return !strings.ContainsRune("/:@%+=,._-", r) && (r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// warnOfPassword tells who typed a password that others can see it.
func (a *app) warnOfPassword() {
	if a.dbSource == dbFlag && redact.Text(a.db) != a.db && !a.warned {
		a.warned = true
		fmt.Fprintln(a.stderr, "warning: the password in --db is visible to everybody on this machine (ps); put the URL into LEDGERD_DB, or into a file that LEDGERD_DB_FILE, or db_file in the config, names")
	}
}
