// Package dburl parses the URLs of ledgers, and hides which database a ledger is in.
//
// A [Database] is the place of a present or future ledger: an SQLite file or a schema of a Postgres database.
// Its methods do all that differs between the databases: open, migrate, examine, back up and query a ledger. So no
// other package asks which database it has. A further database would be one more file here, and one case in Parse.
package dburl

import (
	"context"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/tables"
	"github.com/ledgerd/ledgerd/schema"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Store is an open ledger: for its rules (ledger.Store), and for copies of its tables (tables.Store).
type Store interface {
	ledger.Store
	tables.Store
	// Busy counts the calls since Open that had to wait or to be repeated because of other programs.
	Busy() int64
}

// Database is the place of a ledger. Two equal values (==) are the same place.
type Database interface {
	// String is the URL as it may be shown: without a password.
	String() string
	// Brief is the place in the shortest form: the path of a file without sqlite:, with ~ for the home directory.
	Brief() string

	// Open opens the ledger.
	Open(ctx context.Context, o Options) (Store, error)
	// Status is the schema that the ledger has (0: there is no ledger), and the newest that this program knows.
	Status(ctx context.Context) (have, known int, err error)
	// Migrate makes the ledger, or brings its schema up to date.
	Migrate(ctx context.Context) (Migration, error)
	// Examine looks at the database without opening the ledger; sound means that it can be opened.
	Examine(ctx context.Context) (found []finding.Finding, sound bool)
	// Integrity looks for damage. It reads the whole ledger; the end of ctx ends it early.
	Integrity(ctx context.Context) finding.Finding
	// Backup writes a copy of the ledger into a new file. On Postgres it returns a *ToolError: pg_dump does that.
	Backup(ctx context.Context, path string) error
	// Restore puts such a copy in the place of the ledger. before is the path to which the old ledger was moved, "" if
	// there was none. Errors: ErrInUse while a process has the ledger open; *ToolError as of Backup.
	Restore(ctx context.Context, from string, r RestoreHooks) (before string, err error)
	// Query prepares a SELECT; it cannot write. file is the name of the query in messages.
	Query(ctx context.Context, file, text string) (*query.Query, error)
	// Grants returns the statements with which the owner of the ledger makes a database role called name, with the
	// rights that may describes; nil if the database has no roles.
	Grants(name string, may schema.Role) []string
	// Secrecy names a better place for a password than the URL; "" if there is none.
	Secrecy() string
}

// Options of Open.
type Options struct {
	// Make makes the ledger if there is none, and the folder of its file.
	Make bool
	// ReadOnly opens an existing ledger on connections that cannot write. It has no effect on SQLite.
	ReadOnly bool
	// URL returns the URL of a Postgres ledger anew, for the user and password of each new connection; may be nil.
	URL func() (string, error)
	// Migrated is called after Open has migrated a ledger in a file. If it is nil, Open refuses a ledger of an older
	// schema, as it always does on Postgres.
	Migrated func(Migration)
}

// RestoreHooks are called by Restore. Replace is called before an existing file is replaced; its error ends Restore.
// Fill may write into the restored ledger before any other process sees it; newest is the newest time in the backup.
type RestoreHooks struct {
	Replace func() error
	Fill    func(s Store, newest time.Time) error
}

// ErrInUse is the error of Restore while a process has the ledger open.
var ErrInUse = sqlite.ErrInUse

// Migration describes how a ledger was brought up to date.
type Migration struct {
	From, To int    // numbers of schemas; from 0: the ledger was made
	Copy     string // path of a copy of the ledger as it was; "" if there is none
}

// Error is a mistake in a URL.
type Error struct{ Message, Hint string }

func (e *Error) Error() string { return e.Message }

// FolderError means that the folder of a ledger cannot be made.
type FolderError struct {
	Folder string
	Err    error
}

func (e *FolderError) Error() string {
	return "cannot make the folder " + e.Folder + " for the ledger: " + e.Err.Error()
}
func (e *FolderError) Unwrap() error { return e.Err }

// ToolError means that the user has to run a tool of the database for this task.
type ToolError struct {
	Code    string // the class of the error, for programs
	Message string
	Command string // the line for a shell, with steps before or after it
}

func (e *ToolError) Error() string { return e.Message }

// Forms are the URLs of a database, for help and hints.
const Forms = "sqlite:PATH or postgres://user@host/name"

// Parse reads the URL of a ledger: sqlite:PATH, or postgres://… with the schema in search_path. The error is
// an *Error; source names the origin of the URL.
func Parse(text, source string) (Database, error) {
	if path, ok := sqlitePath(text); ok {
		path, err := absolute(path, "")
		return File(path), err
	}
	if scheme, _, _ := strings.Cut(text, ":"); scheme == "postgres" || scheme == "postgresql" {
		return parsePostgres(text, source)
	}
	path := "ledger.db"
	if !strings.Contains(text, ":") && text != "" {
		path = text
	}
	return nil, &Error{Message: source + ` "` + redact.Text(text) + `": not a database URL`,
		Hint: "an SQLite file is sqlite:" + path + ", Postgres is postgres://user@host/name"}
}

// Relative returns a URL from a file in a folder: the path of an SQLite file may be relative to that folder. Any other
// text stays as it is.
func Relative(text, folder string) string {
	if path, ok := sqlitePath(text); ok {
		if path, err := absolute(path, folder); err == nil {
			return File(path).String()
		}
	}
	return text
}
