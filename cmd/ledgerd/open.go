package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// address says where the ledger is: --db, LEDGERD_DB, the config, or the file in the data directory.
func (a *app) address() (dburl.Database, error) {
	if a.db == "" {
		dir, err := a.dataDir()
		return dburl.File(filepath.Join(dir, "ledger.db")), err
	}
	return parseAddress(a.db, a.dbSource)
}

// parseAddress reads the URL of a ledger; source is where it is from, for errors.
func parseAddress(db, source string) (dburl.Database, error) {
	at, err := dburl.Parse(db, source)
	if bad, ok := errors.AsType[*dburl.Error](err); ok {
		return nil, usage("bad_db", bad.Hint, "%s", bad.Message)
	}
	return at, err
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
	address dburl.Database
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
	line := "ledger: " + l.address.Brief()
	if l.isNew {
		line += " (new)"
	}
	if a.config.File != "" {
		line += "   config: " + dburl.ShortPath(a.config.File)
	}
	fmt.Fprintln(a.stderr, line)
	for _, w := range a.config.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s: %s%s\n", w.Where(), w.Message, prefixed("; ", w.Hint))
	}
}

func (a *app) openAt(ctx context.Context, at dburl.Database, create bool) (*opened, error) {
	a.warnOfPassword()
	store, err := at.Open(ctx, dburl.Options{Make: create})
	if err != nil {
		return nil, a.explainOpen(at, err)
	}
	return &opened{Ledger: ledger.New(instrument(store), ledger.Options{Logger: a.logger()}), store: store, address: at}, nil
}

// explainOpen adds what the command line knows about a ledger that could not be opened.
func (a *app) explainOpen(at dburl.Database, err error) error {
	if bad, ok := errors.AsType[*dburl.FolderError](err); ok && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return fail(exitDenied, "denied", bad.Error(), "name a place that you may write to: --db sqlite:PATH")
	}
	f := explain(err)
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		f.message = "no ledger in " + at.Brief()
		f.hint = "make one: " + a.migrateCommand() + "    (ls, show, stats never create one)"
	case errors.Is(err, ledger.ErrSchema):
		f.hint = strings.Replace(f.hint, migrateCommand, a.migrateCommand(), 1)
	case errors.Is(err, ledger.ErrDenied) && at.Secrecy() != "":
		f.hint = prefixed("the URL is from ", a.dbSource) + "; " + at.Secrecy()
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
	return migrateCommand + " --db " + shell.Quote(a.db)
}

// warnOfPassword tells who typed a password that others can see it.
func (a *app) warnOfPassword() {
	if a.dbSource == dbFlag && redact.Text(a.db) != a.db && !a.warned {
		a.warned = true
		fmt.Fprintln(a.stderr, "warning: the password in --db is visible to everybody on this machine (ps); put the URL into LEDGERD_DB, or into a file that LEDGERD_DB_FILE, or db_file in the config, names")
	}
}
