// Package dburl is the one grammar of database URLs, and the one place that knows which backends there are.
//
// A [Database] is where a ledger is, or may be made: an SQLite file or a schema of a Postgres database. Whatever
// differs between the backends (how a ledger is opened, migrated, examined, backed up, asked by a query) is a
// method of it, so no other package asks which backend it has. Another backend is one more file here.
package dburl

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Database is where a ledger is. Two that are equal (==) are the same.
type Database interface {
	// String is the URL as it may be shown: without a password.
	String() string
	// Brief is the URL as people read it.
	Brief() string

	// Open opens the ledger.
	Open(ctx context.Context, o Options) (ledger.Store, error)
	// Status is the schema that the ledger has (0: there is no ledger), and the newest that this program knows.
	Status(ctx context.Context) (have, known int, err error)
	// Migrate makes the ledger, or brings its schema up to date.
	Migrate(ctx context.Context) error
	// Examine looks at the database without opening the ledger; sound says that it can be opened.
	Examine(ctx context.Context) (found []ledger.Finding, sound bool)
	// Backup writes a copy of the ledger into a new file. *ToolError where a tool of the database does that.
	Backup(ctx context.Context, path string) error
	// Query prepares a SELECT, which can only read; file is its name, for messages.
	Query(ctx context.Context, file, text string) (*query.Query, error)
	// Beside is a place for another ledger beside this one, in the same database or on the same disk, and how to
	// remove it.
	Beside(name string) (place Database, remove func(context.Context) error, err error)
	// Version names the database system with its version.
	Version(ctx context.Context) (string, error)
	// Secrecy says where a password is better kept than in the URL; "" if there is none.
	Secrecy() string
}

// Options of Open.
type Options struct {
	// Make makes the ledger where there is none, and the folder of its file.
	Make bool
	// Unfinished opens a ledger that is being copied into, too; it makes it where there is none.
	Unfinished bool
}

// Error is a mistake in a URL.
type Error struct{ Message, Hint string }

func (e *Error) Error() string { return e.Message }

// FolderError says that the folder of a ledger cannot be made.
type FolderError struct {
	Folder string
	Err    error
}

func (e *FolderError) Error() string {
	return "cannot make the folder " + e.Folder + " for the ledger: " + e.Err.Error()
}
func (e *FolderError) Unwrap() error { return e.Err }

// ToolError says that something is done with a tool of the database.
type ToolError struct {
	Message string
	Command string // a line for a shell, and what is to be done afterwards
}

func (e *ToolError) Error() string { return e.Message }

// Parse reads the URL of a ledger: sqlite:PATH, or postgres://…, of which search_path names the schema. The error
// is an *Error; source says where the URL is from.
func Parse(text, source string) (Database, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch {
	case scheme == "sqlite" && rest != "":
		path := strings.TrimPrefix(rest, "//")
		if after, ok := strings.CutPrefix(path, "~/"); ok { // the shell leaves it after a colon
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, err
			}
			path = filepath.Join(home, after)
		}
		path, err := filepath.Abs(path)
		return File(path), err
	case scheme == "postgres" || scheme == "postgresql":
		return parsePostgres(text, source)
	}
	return nil, &Error{Message: source + ` "` + redact.Text(text) + `": not a database URL`, Hint: "an SQLite file is sqlite:ledger.db, Postgres is postgres://user@host/name"}
}
