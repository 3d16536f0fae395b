package dburl

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
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
	schema, _, _ := strings.Cut(u.Query().Get("search_path"), ",")
	return postgresSchema{text, strings.TrimSpace(schema)}, nil
}

func (d postgresSchema) String() string { return redact.Text(d.url) }

func (d postgresSchema) Brief() string { return d.String() }

func (d postgresSchema) Open(ctx context.Context, o Options) (Store, error) {
	store, err := postgres.Connect(ctx, d.url, postgres.Options{Schema: d.schema, MustExist: !o.Make && !o.Unfinished,
		Unfinished: o.Unfinished, ReadOnly: o.ReadOnly, URL: o.URL})
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

// Backup describes how pg_dump does it, and how the ledger is restored.
func (d postgresSchema) Backup(_ context.Context, path string) error {
	return &ToolError{
		Code:    "use_pg_dump",
		Message: fmt.Sprintf("a ledger on Postgres is backed up with pg_dump: %s", d),
		Command: fmt.Sprintf("pg_dump --format=custom --table=%s --file=%s %s\nback, into a database without a ledger: "+
			"pg_restore --single-transaction --dbname=… %[2]s",
			shell.Quote(cmp.Or(d.schema, "public")+".ledger_*"), shell.Quote(path), shell.Quote(d.forTools())),
	}
}

// Restore describes how pg_restore does it.
func (d postgresSchema) Restore(_ context.Context, from string, _ Restoring) (string, error) {
	at, tables := shell.Quote(d.forTools()), cmp.Or(d.schema, "public")+".ledger_"
	return "", &ToolError{
		Code:    "use_pg_restore",
		Message: fmt.Sprintf("a ledger on Postgres is restored with pg_restore: %s", d),
		Command: fmt.Sprintf("stop every program that uses the ledger and back it up (ledgerd db backup), then drop its tables "+
			"(%s…) and run: pg_restore --single-transaction --dbname=%s %s", tables, at, shell.Quote(from)),
	}
}

// forTools is the URL as the programs of Postgres take it. The password stays out.
func (d postgresSchema) forTools() string {
	from := url.URL{Scheme: "postgres"}
	if u, err := url.Parse(d.String()); err == nil { // as it was parsed before
		from = *u
		if u.User != nil {
			from.User = url.User(u.User.Username())
		}
		q := u.Query()
		for name := range q { // libpq refuses what it does not know
			if name == "search_path" || strings.HasSuffix(name, "password") || strings.HasPrefix(name, "pool_") {
				q.Del(name)
			}
		}
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
