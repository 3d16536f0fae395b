package dburl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// postgresSchema is a ledger in a schema of a Postgres database.
type postgresSchema struct {
	url    string
	schema string // "" for public
}

func parsePostgres(text, source string) (Database, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, &Error{Message: source + ": not a Postgres URL", Hint: "it is postgres://user@host:5432/name; special " +
			"characters of a password are written as %XX"}
	}
	schema, ok := firstName(u.Query().Get("search_path"))
	if !ok || schema == "$user" {
		return nil, &Error{Message: source + ": search_path does not begin with the name of a schema", Hint: "the schema of " +
			"the ledger comes first, such as search_path=jobs,public; a name with capital letters is written in double quotes"}
	}
	return postgresSchema{text, schema}, nil
}

// firstName reads the first name of a search_path as Postgres does. It refuses capital letters without quotes: Postgres
// takes them for small ones, so the schema would have another name than people read. An empty list has the name "".
func firstName(list string) (name string, ok bool) {
	const spaces = " \t\n\r\f\v"
	list = strings.Trim(list, spaces)
	if rest, quoted := strings.CutPrefix(list, `"`); quoted {
		for again := true; again; {
			var part string
			if part, rest, ok = strings.Cut(rest, `"`); !ok {
				return "", false
			}
			name += part
			if rest, again = strings.CutPrefix(rest, `"`); again {
				name += `"`
			}
		}
		rest = strings.TrimLeft(rest, spaces)
		return name, rest == "" || rest[0] == ','
	}
	name, _, _ = strings.Cut(list, ",")
	name = strings.TrimRight(name, spaces)
	capital := strings.ContainsFunc(name, func(r rune) bool { return 'A' <= r && r <= 'Z' })
	return name, !capital && !strings.ContainsAny(name, spaces+`"`)
}

func (d postgresSchema) String() string { return redact.Text(d.url) }

func (d postgresSchema) Brief() string { return d.String() }

func (d postgresSchema) Open(ctx context.Context, o Options) (Store, error) {
	store, err := postgres.Connect(ctx, d.url, postgres.Options{Schema: d.schema, MustExist: !o.Make,
		ReadOnly: o.ReadOnly, URL: o.URL})
	if err != nil {
		return nil, err
	}
	return store, nil
}

func (d postgresSchema) Status(ctx context.Context) (have, known int, err error) {
	return postgres.Status(ctx, d.url, postgres.Options{Schema: d.schema})
}

func (d postgresSchema) Migrate(ctx context.Context) (m Migration, err error) {
	m.From, m.To, err = postgres.Migrate(ctx, d.url, postgres.Options{Schema: d.schema})
	return m, err
}

func (d postgresSchema) Examine(ctx context.Context) ([]finding.Finding, bool) {
	return postgres.Examine(ctx, d.url, postgres.Options{Schema: d.schema})
}

func (d postgresSchema) Integrity(ctx context.Context) finding.Finding {
	return postgres.Integrity(ctx, d.url, postgres.Options{Schema: d.schema})
}

// Backup returns the commands that back up and restore the ledger, in a *ToolError.
func (d postgresSchema) Backup(_ context.Context, path string) error {
	makeSchema := d.makeSchema("…")
	if makeSchema != "" {
		makeSchema += " && "
	}
	return &ToolError{
		Code:    "use_pg_dump",
		Message: fmt.Sprintf("a ledger on Postgres is backed up with pg_dump: %s", d),
		Command: fmt.Sprintf("pg_dump --format=custom --table=%s --file=%s %s\nback, into a database without a ledger: "+
			"%spg_restore --single-transaction --dbname=… %[2]s",
			shell.Quote(d.tables()+"*"), shell.Quote(path), shell.Quote(d.forTools()), makeSchema),
	}
}

// Restore returns the command that restores the ledger, in a *ToolError.
func (d postgresSchema) Restore(_ context.Context, from string, _ RestoreHooks) (string, error) {
	at, makeSchema := shell.Quote(d.forTools()), d.makeSchema(shell.Quote(d.forTools()))
	if makeSchema != "" {
		makeSchema = "\nin a new database make the schema before: " + makeSchema
	}
	return "", &ToolError{
		Code:    "use_pg_restore",
		Message: fmt.Sprintf("a ledger on Postgres is restored with pg_restore: %s", d),
		Command: fmt.Sprintf("stop every program that uses the ledger and back it up (ledgerd db backup), then drop its tables "+
			"(%s…) and run: pg_restore --single-transaction --dbname=%s %s%s", d.tables(), at, shell.Quote(from), makeSchema),
	}
}

// tables is the prefix of the names of the tables, with the schema, as the programs of Postgres take it. They read a
// name in small letters unless it is quoted.
func (d postgresSchema) tables() string {
	name := cmp.Or(d.schema, "public")
	if strings.ContainsFunc(name, func(r rune) bool { return r != '_' && (r < '0' || '9' < r) && (r < 'a' || 'z' < r) }) {
		name = pgx.Identifier{name}.Sanitize()
	}
	return name + ".ledger_"
}

// makeSchema is the command that makes the schema in a database, because pg_dump of tables leaves it out; "" for
// public: every database has it.
func (d postgresSchema) makeSchema(database string) string {
	if cmp.Or(d.schema, "public") == "public" {
		return ""
	}
	return "psql --dbname=" + database + " --command=" + shell.Quote("CREATE SCHEMA "+pgx.Identifier{d.schema}.Sanitize())
}

// ofLibpq are the parameters of URLs that both pgx and libpq know, without passwords. libpq refuses others, such as
// those of connection pools.
var ofLibpq = []string{"application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname", "host",
	"krbsrvname", "options", "passfile", "port", "require_auth", "service", "sslcert", "sslcertmode", "sslkey", "sslmode",
	"sslnegotiation", "sslrootcert", "sslsni", "target_session_attrs", "user"}

// forTools is the URL as the programs of Postgres take it. The password stays out.
func (d postgresSchema) forTools() string {
	from := url.URL{Scheme: "postgres"}
	if u, err := url.Parse(d.String()); err == nil { // as it was parsed before
		from = *u
		if u.User != nil {
			from.User = url.User(u.User.Username())
		}
		q := u.Query()
		maps.DeleteFunc(q, func(name string, _ []string) bool { return !slices.Contains(ofLibpq, name) })
		from.RawQuery = q.Encode()
	}
	return from.String()
}

func (d postgresSchema) Query(ctx context.Context, file, text string) (*query.Query, error) {
	return query.Postgres(ctx, d.url, file, text)
}

func (d postgresSchema) Grants(name string, may schema.Role) []string {
	return append([]string{"DO $$ BEGIN CREATE ROLE " + pgx.Identifier{name}.Sanitize() +
		" NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"},
		postgres.Grants(d.schema, name, may)...)
}

func (d postgresSchema) Secrecy() string {
	return "better than a password there: PGPASSFILE, or a file that LEDGERD_DB_FILE, or db_file in the config, names"
}
