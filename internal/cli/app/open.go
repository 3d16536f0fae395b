package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/remote"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Address returns the database of the ledger, from --db, LEDGERD_DB or the config, else the file in the data directory.
// It is an error for a ledger over HTTP.
func (a *App) Address() (dburl.Database, error) {
	if a.Db == "" {
		dir, err := a.DataDir()
		return dburl.File(filepath.Join(dir, "ledger.db")), err
	}
	if dburl.IsRemote(a.Db) {
		return nil, failure.Usage("needs_database", "run it on a machine that can connect to the database, with --db "+dburl.Forms+
			"\nover HTTP there are "+overHTTP, "this command needs the database itself, and %s is an HTTP API",
			redact.Text(a.Db))
	}
	return ParseAddress(a.Db, a.DbSource)
}

// overHTTP are the commands that need no database.
const overHTTP = "run, add, work, claim, finish, ls, show, errors, stats, watch, retry, cancel, kind, agents, journal, " +
	"mcp, prune --where"

// ParseAddress reads the URL of a database; source is where it is from, for errors.
func ParseAddress(db, source string) (dburl.Database, error) {
	at, err := dburl.Parse(db, source)
	return at, badDB(err)
}

// badDB turns a *dburl.Error into an error in the words of the command line.
func badDB(err error) error {
	if bad, ok := errors.AsType[*dburl.Error](err); ok {
		return failure.Usage("bad_db", bad.Hint, "%s", bad.Message)
	}
	return err
}

// Place is where a ledger is.
type Place interface {
	String() string // the URL, without a password
	Brief() string  // the shortest form: the path of a file, with ~ for the home directory
}

// Opened is a ledger, over its database or over HTTP.
type Opened struct {
	ledgers.Any
	Address Place
	IsNew   bool // it was made now
}

// Purpose is what a ledger is opened for. It decides whether an older one in a file is brought up to date: programs of
// an earlier release may be at work, and a command that only reads must not change the ledger.
type Purpose int

const (
	ToRead Purpose = iota // the ledger must exist, and have the schema of this program
	ToWork                // it must exist; an older one in a file is migrated
	ToMake                // it is made where there is none
	ToCopy                // as ToRead, but the environment of the config need not be that of the ledger
)

// ToAct is the purpose of a command that changes something, unless it is a dry run.
func ToAct(dryRun bool) Purpose {
	if dryRun {
		return ToRead
	}
	return ToWork
}

// Database is a ledger over its database.
type Database struct {
	*ledger.Ledger
	Store    dburl.Store // of the ledger, without the wrapper of Program
	Address  dburl.Database
	IsNew    bool             // it was made now
	Migrated *dburl.Migration // when it was opened; nil if it was not
}

// opened returns the ledger for commands that also work over HTTP.
func (d *Database) opened() *Opened {
	return &Opened{Any: d.Ledger, Address: d.Address, IsNew: d.IsNew}
}

// Open and Create are for most commands. OpenDatabase is for those that need the database itself. Reach is Open without
// the line "ledger: …", and OpenAt opens the ledger of any database.

// Open opens a ledger that must exist, over its database or over HTTP.
func (a *App) Open(ctx context.Context, purpose Purpose) (*Opened, error) {
	l, err := a.Reach(ctx, purpose)
	if err == nil {
		a.Announce(l)
	}
	return l, err
}

// Create opens a ledger, and makes it if there is none.
func (a *App) Create(ctx context.Context) (*Opened, error) {
	l, err := a.Reach(ctx, ToWork)
	if errors.Is(err, ledger.ErrNoLedger) {
		l, err = a.Reach(ctx, ToMake)
	}
	if err == nil {
		a.Announce(l)
	}
	return l, err
}

// reachTime is how long WhenReachable tries, and reachPause the longest time between two tries.
const (
	reachTime  = 2 * time.Minute
	reachPause = 10 * time.Second
)

// WhenReachable calls do again, for up to reachTime, while the ledger is unavailable. So a daemon survives a database
// that restarts, or that starts later.
func WhenReachable(ctx context.Context, log *slog.Logger, do func() error) error {
	began := time.Now()
	for pause := time.Second; ; pause = min(2*pause, reachPause) {
		err := do()
		if !errors.Is(err, ledger.ErrUnavailable) || time.Since(began)+pause > reachTime {
			return err
		}
		log.Warn("the ledger cannot be reached, trying again", "error", err, "until", began.Add(reachTime).Format(time.TimeOnly))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Reach opens a ledger over its database or over HTTP, and does not announce it.
func (a *App) Reach(ctx context.Context, purpose Purpose) (*Opened, error) {
	if dburl.IsRemote(a.Db) {
		return a.connect(ctx)
	}
	l, err := a.openLedger(ctx, purpose)
	if err != nil {
		return nil, err
	}
	return l.opened(), nil
}

// openLedger opens the ledger over its database, and reports a migration.
func (a *App) openLedger(ctx context.Context, purpose Purpose) (*Database, error) {
	at, err := a.Address()
	if err != nil {
		return nil, err
	}
	l, err := a.OpenAt(ctx, at, purpose)
	if err == nil {
		a.tellMigrated(l)
	}
	return l, err
}

// connect reaches a ledger over HTTP.
func (a *App) connect(ctx context.Context) (*Opened, error) {
	at, token, err := a.Remote()
	if err != nil {
		return nil, err
	}
	l, err := remote.Open(ctx, remote.Config{At: at, Token: token, Environment: a.Config.Environment, Log: a.Log,
		Drain: a.askedToStop})
	if err != nil {
		return nil, err
	}
	return &Opened{Any: l, Address: l}, nil
}

// Remote returns the address of the HTTP API and the token for it.
func (a *App) Remote() (at dburl.Remote, token string, err error) {
	if at, err = dburl.ParseRemote(a.Db, a.DbSource); err != nil {
		return at, "", badDB(err)
	}
	token, err = a.token()
	return at, token, err
}

// askedToStop stops the workers of this program: the server of a ledger over HTTP has asked for it. See
// UntilAskedToStop.
func (a *App) askedToStop(agent string) {
	a.stopOnce.Do(func() {
		a.Log.Info("the server asks this worker to stop; it claims no more items and finishes the running ones", "agent", agent)
		close(a.StopAsked)
	})
}

// UntilAskedToStop ends a context when a ledger that is reached over HTTP asks a worker of this program to end.
func (a *App) UntilAskedToStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.StopAsked:
			end()
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// tokenEnv is the environment variable with the access token of a ledger that is reached over HTTP.
const tokenEnv = "LEDGERD_TOKEN"

// token returns the access token from --token-file or the environment; "" if there is none.
func (a *App) token() (string, error) {
	if a.tokenFile == "" {
		return strings.TrimSpace(os.Getenv(tokenEnv)), nil
	}
	f, err := os.Open(a.tokenFile)
	if err != nil {
		return "", failure.Usage("bad_flag", "", "--token-file: %v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err == nil && len(text) > maxTokenBytes {
		err = fmt.Errorf("%s has more than %d bytes", a.tokenFile, maxTokenBytes)
	}
	if err != nil {
		return "", failure.Usage("bad_flag", "it has one token, as ledgerd token new printed it", "--token-file: %v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// maxTokenBytes bounds a file with a token.
const maxTokenBytes = 4 << 10

// OpenDatabase opens a ledger that must exist over its database.
func (a *App) OpenDatabase(ctx context.Context, purpose Purpose) (*Database, error) {
	l, err := a.openLedger(ctx, purpose)
	if err == nil {
		a.Announce(l.opened())
	}
	return l, err
}

// tellMigrated prints that the ledger was brought up to date, before the command begins: the command may fail.
func (a *App) tellMigrated(l *Database) {
	if l.Migrated == nil || a.Quiet {
		return
	}
	line := fmt.Sprintf("migrated: schema %d → %d", l.Migrated.From, l.Migrated.To)
	if l.Migrated.Copy != "" {
		line += "   the ledger as it was: " + dburl.ShortPath(l.Migrated.Copy)
	}
	fmt.Fprintln(a.Stderr, line)
}

// LogMigrated logs that the ledger was brought up to date, unless m is nil.
func (a *App) LogMigrated(at dburl.Database, m *dburl.Migration) {
	if m != nil {
		a.Log.Info("the schema of the ledger was brought up to date", "ledger", at.String(), "from", m.From, "to", m.To,
			"copy", m.Copy)
	}
}

// Announce reports which ledger is open.
func (a *App) Announce(l *Opened) {
	if a.Quiet {
		return
	}
	line := "ledger: " + l.Address.Brief()
	if l.IsNew {
		line += " (new)"
	}
	if a.Config.File != "" {
		line += "   config: " + dburl.ShortPath(a.Config.File)
	}
	fmt.Fprintln(a.Stderr, line)
	for _, w := range a.Config.Warnings {
		fmt.Fprintf(a.Stderr, "warning: %s: %s%s\n", w.Where(), w.Message, report.Prefixed("; ", w.Hint))
	}
}

// OpenAt opens the ledger of a database. A new one gets the environment of the config. It prints nothing except the
// warning about a password.
func (a *App) OpenAt(ctx context.Context, at dburl.Database, purpose Purpose) (*Database, error) {
	a.WarnOfPassword()
	var migrated *dburl.Migration
	options := dburl.Options{Make: purpose == ToMake, URL: a.URLReader(at)}
	if purpose != ToRead && purpose != ToCopy {
		options.Migrated = func(m dburl.Migration) { migrated = &m }
	}
	store, err := at.Open(ctx, options)
	if err != nil {
		return nil, a.ExplainOpen(at, err)
	}
	var wrapped ledger.Store = store
	if a.Program.Store != nil {
		wrapped = a.Program.Store(store)
	}
	environment := a.Config.Environment
	if purpose == ToCopy {
		environment = store.Opened().Environment
	}
	l := ledger.New(wrapped, ledger.Options{Logger: a.Log, TracerProvider: a.TracerProvider(ctx),
		Environment: environment})
	if purpose == ToMake {
		if err := l.RecordEnvironment(ctx); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return &Database{Ledger: l, Store: store, Address: at, IsNew: purpose == ToMake, Migrated: migrated}, nil
}

// isLedger reports whether a database is the one of the ledger. Others are the ends of a copy, for example.
func (a *App) isLedger(at dburl.Database) bool {
	ofLedger, err := a.Address()
	return err == nil && ofLedger == at
}

// URLReader returns a function that reads the URL of this database again from the file that has it (db_file), for a
// password that changes. It returns nil if the URL is not from a file.
func (a *App) URLReader(at dburl.Database) func() (string, error) {
	if a.DbSource == DbFlag || a.Config == nil || a.Config.DBFile == "" || !a.isLedger(at) {
		return nil
	}
	file := a.Config.DBFile
	return func() (string, error) { return config.ReadURL(file) }
}

// ExplainOpen adds what the command line knows about a ledger that could not be opened.
func (a *App) ExplainOpen(at dburl.Database, err error) error {
	if bad, ok := errors.AsType[*dburl.FolderError](err); ok && (errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, syscall.EROFS)) {
		return failure.New(failure.ExitDenied, "denied", bad.Error(), "name a place that you may write to: --db sqlite:PATH")
	}
	f := failure.Explain(err)
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		f.Message = "no ledger in " + at.Brief()
		f.Hint, f.Act = "make one\nls, show and stats never create one", act.Act{Name: act.Migrate}
	case errors.Is(err, ledger.ErrDenied) && at.Secrecy() != "" && a.isLedger(at) && f.Act.Name == "":
		// The password was refused: after other refusals the store names an act.
		f.Hint = strings.TrimPrefix(f.Hint+"; the URL is from "+a.DbSource+"; "+at.Secrecy(), "; ")
	}
	return f
}

// WarnOfPassword warns, once, that other users can see a password given in --db.
func (a *App) WarnOfPassword() {
	if a.DbSource == DbFlag && redact.Text(a.Db) != a.Db && !a.warned {
		a.warned = true
		fmt.Fprintln(a.Stderr, "warning: every user of this machine can see the password in --db (ps); put the URL into "+
			"LEDGERD_DB, or into a file that LEDGERD_DB_FILE, or db_file in the config, names")
	}
}
