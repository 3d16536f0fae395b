// Package dburl is the one grammar of database URLs, and the one place that knows which backends there are.
//
// A [Database] is where a ledger is, or may be made: an SQLite file or a schema of a Postgres database. All that
// differs between the backends is a method of it: how a ledger is opened, migrated, examined, backed up, and
// queried. So no other package asks which backend it has. Another backend is one more file here, and one case in Parse.
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

// Store is an open ledger as its database keeps it. Its rules need less.
type Store interface {
	ledger.Store
	tables.Store
	// Busy is how often, since it was opened, something had to wait or to be repeated because of others.
	Busy() int64
}

// Database is where a ledger is. Two that are equal (==) are the same.
type Database interface {
	// String is the URL as it may be shown: without a password.
	String() string
	// Brief is the URL as people read it.
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
	// Backup writes a copy of the ledger into a new file. *ToolError where a tool of the database does that.
	Backup(ctx context.Context, path string) error
	// Restore puts such a copy in the place of the ledger and returns where that was moved to, "" if there was none.
	// It is ErrInUse while a process has the ledger open, and *ToolError as of Backup.
	Restore(ctx context.Context, from string, r Restoring) (before string, err error)
	// Query prepares a SELECT. It can only read; file is its name, for messages.
	Query(ctx context.Context, file, text string) (*query.Query, error)
	// Grants are the statements with which the owner of the ledger makes a role of the server that may do what a role of
	// the ledger may; nil if the database has no roles.
	Grants(name string, may schema.Role) []string
	// Secrecy names a better place for a password than the URL; "" if there is none.
	Secrecy() string
}

// Options of Open.
type Options struct {
	// Make makes the ledger where there is none, and the folder of its file.
	Make bool
	// ReadOnly is for a ledger that is there: its connections cannot write. Those of SQLite that read never can.
	ReadOnly bool
	// Unfinished opens a ledger that is being copied into, too; it makes it where there is none.
	Unfinished bool
	// URL returns the URL of a Postgres ledger anew, for the user and password of each new connection; may be nil.
	URL func() (string, error)
	// Migrated is told when Open has brought a ledger in a file up to date. If it is nil, Open refuses a ledger of an
	// older schema, as it always does on Postgres.
	Migrated func(Migration)
}

// Restoring is what Restore asks of its caller: whether a file that is there may be replaced, and to write into the
// restored ledger before any other process sees it. newest is the newest time in the backup.
type Restoring struct {
	Replace func() error
	Fill    func(s Store, newest time.Time) error
}

// ErrInUse is matched by the error of Restore while a process has the ledger open.
var ErrInUse = sqlite.ErrInUse

// Migration is what was done to bring a ledger up to date.
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

// ToolError means that a tool of the database does this task.
type ToolError struct {
	Code    string // the class of the error, for programs
	Message string
	Command string // a line for a shell, and what is to be done afterwards
}

func (e *ToolError) Error() string { return e.Message }

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

// Relative is the URL of a ledger as a file in the folder names it: the path of an SQLite file may be relative to
// the folder. Text that is no URL stays as it is.
func Relative(text, folder string) string {
	if path, ok := sqlitePath(text); ok {
		if path, err := absolute(path, folder); err == nil {
			return File(path).String()
		}
	}
	return text
}
