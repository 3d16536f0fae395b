package lockable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// class is the type of a column, as far as this package must know it.
type class int

const (
	other       class = iota // any type that this package cannot use
	untyped                  // SQLite: declared without a type
	text                     // also timestamps of SQLite
	number                   // integers
	timestamptz              // Postgres: timestamp with time zone
	uuidType                 // Postgres: uuid
)

// column is a column as the database describes it.
type column struct {
	name      string
	declared  string // its type, for errors
	cast      string // Postgres: its type without a length, to cast a parameter to
	class     class
	expires   class // what it holds if it is the one for expires_at; other: it cannot be
	notNull   bool
	generated bool
	length    int // most characters of text; 0: any number
}

// table is a table as the database describes it.
type table struct {
	name    string // quoted, with its schema
	bare    string // quoted
	columns []column
	uniques [][]string // sets of columns whose values together are unique
	leading []string   // columns with which an index begins
}

func (t *table) names() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// column finds a column. foldCase is for SQLite, where case does not matter.
func (t *table) column(name string, foldCase bool) (column, bool) {
	for _, c := range t.columns {
		if c.name == name || foldCase && strings.EqualFold(c.name, name) {
			return c, true
		}
	}
	return column{}, false
}

// plan is a Table that was checked against the database: names are those of the database, quoted.
type plan struct {
	*table
	Table
	postgres         bool
	by, until, token string // the columns LockedBy, ExpiresAt and LockID; token is "" if there is none
	byClass          class  // of by
	untilClass       class  // what until holds
	tokenCast        string
	columns, keys    []string // of the row
	keyCasts         []string
	required         []string // columns that may be NULL but must not in a claimed row
}

// dialectPostgres is the dialect of connections to Postgres.
const dialectPostgres = "postgres"

// describes reads the description of a table from the database, for each dialect.
var describes = map[string]func(ctx context.Context, db ledger.Conn, schema, name string) (*table, error){
	"sqlite": describeSQLite, dialectPostgres: describePostgres}

// check compares a Table and the tags of a row with the database.
func (t Table) check(ctx context.Context, db ledger.Conn, l *layout) (*plan, error) {
	describe, ok := describes[db.Dialect()]
	if !ok {
		return nil, invalid("db", "is a connection of the dialect %q; rows can be claimed on %s", db.Dialect(),
			strings.Join(slices.Sorted(maps.Keys(describes)), " and "))
	}
	p := &plan{Table: t, postgres: db.Dialect() == dialectPostgres}
	if t.Name == "" {
		return nil, invalid("name", "is required")
	}
	var err error
	if p.table, err = describe(ctx, db, t.Schema, t.Name); err != nil {
		return nil, err
	}
	if p.table == nil {
		return nil, invalid("name", "no table %s in this database; names are taken as the database has them, capitals too, "+
			"and the name of the schema stands in Schema", t.Name)
	}
	if err := p.checkClaim(); err != nil {
		return nil, err
	}
	if err := p.checkRow(ctx, db, l); err != nil {
		return nil, err
	}
	if !p.postgres {
		if err := p.checkValues(ctx, db); err != nil {
			return nil, err
		}
	}
	if err := checkMarks("where", t.Where, len(t.Args)); err != nil {
		return nil, err
	}
	return p, checkMarks("order_by", t.OrderBy, 0)
}

// need finds a column of the table and quotes its name.
func (p *plan) need(field, name, add string) (column, error) {
	c, ok := p.column(name, !p.postgres)
	if !ok {
		if add != "" {
			add = fmt.Sprintf("; add it: ALTER TABLE %s ADD COLUMN %s %s", p.name, quote(name), add)
		}
		return c, invalid(field, "%s has no column %s, it has %s%s", p.name, quote(name), strings.Join(quoteAll(p.names()),
			", "), add)
	}
	return c, nil
}

// checkClaim checks the columns that a claim writes.
func (p *plan) checkClaim() error {
	expiring := "timestamptz"
	if !p.postgres {
		expiring = "INTEGER"
	}
	by, err := p.need("locked_by", p.LockedBy, "text")
	if err != nil {
		return err
	}
	if by.class == other || by.class == timestamptz {
		return invalid("locked_by", "column %s is %s; it must hold text or integers", by.name, by.declared)
	}
	until, err := p.need("expires_at", p.ExpiresAt, expiring)
	if err != nil {
		return err
	}
	if until.expires == other {
		hint := "a timestamp or an integer (Unix seconds)"
		if p.postgres {
			hint = fmt.Sprintf("timestamptz or an integer (Unix seconds), which mean the same in every time zone: ALTER "+
				"TABLE %s ALTER COLUMN %s TYPE timestamptz", p.name, quote(until.name))
		}
		return invalid("expires_at", "column %s is %s; it must be %s", until.name, until.declared, hint)
	}
	p.by, p.until, p.byClass, p.untilClass = quote(by.name), quote(until.name), by.class, until.expires
	written := []column{by, until}
	if p.LockID != "" {
		token, err := p.need("lock_id", p.LockID, "text")
		if err != nil {
			return err
		}
		if !slices.Contains([]class{untyped, text, uuidType}, token.class) || token.length > 0 && token.length < tokenLength {
			return invalid("lock_id", "column %s is %s; it must be a uuid, or text of at least %d characters", token.name,
				token.declared, tokenLength)
		}
		p.token, p.tokenCast = quote(token.name), token.cast
		written = append(written, token)
	}
	for i, c := range written {
		field := []string{"locked_by", "expires_at", "lock_id"}[i]
		switch {
		case c.notNull:
			return invalid(field, "column %s is NOT NULL, and of a free row it is NULL", c.name)
		case c.generated:
			return invalid(field, "column %s is generated, and a claim writes it", c.name)
		case slices.ContainsFunc(written[:i], func(o column) bool { return o.name == c.name }):
			return invalid(field, "column %s is used twice", c.name)
		}
	}
	return nil
}

// checkValues checks that the column for expires_at holds values of its type only. SQLite compares values of all types
// with each other, so a claim in another form would count as expired, or never expire.
func (p *plan) checkValues(ctx context.Context, db ledger.Conn) error {
	good, want := "typeof("+p.until+") = 'integer'", "integers (Unix seconds)"
	if p.untilClass == text {
		const digit = "[0-9]"
		good = fmt.Sprintf("typeof(%s) = 'text' AND %[1]s GLOB '%[2]s-%[3]s-%[3]s %[4]s*' AND (substr(%[1]s, 12) NOT GLOB "+
			"'*[-+]*' OR %[1]s GLOB '*+00:00' OR %[1]s GLOB '*+0000 UTC*')", // as drivers of Go write a time.Time in UTC
			p.until, strings.Repeat(digit, 4), strings.Repeat(digit, 2), digit)
		want = "times in UTC such as 2026-11-20 17:00:00.123, as strftime writes them"
	}
	return rows(ctx, db, fmt.Sprintf("SELECT CAST(%s AS text) FROM %s WHERE %[1]s IS NOT NULL AND NOT (%[3]s) LIMIT 1",
		p.until, p.name, good), nil, func(scan func(...any) error) error {
		var bad string
		if err := scan(&bad); err != nil {
			return err
		}
		return invalid("expires_at", "column %s holds %q; by its type it must hold %s", p.until, bad, want)
	})
}

// checkRow checks the columns of a row's fields, and that its key identifies a row.
func (p *plan) checkRow(ctx context.Context, db ledger.Conn, l *layout) error {
	row := reflect.New(l.row).Elem()
	for i, name := range l.columns {
		c, err := p.need("row", name, "")
		if err != nil {
			return err
		}
		quoted := quote(c.name)
		p.columns = append(p.columns, quoted)
		if c.notNull || quoted == p.by || quoted == p.until || quoted == p.token { // a claim sets these
			continue
		}
		takes, err := p.takesNull(ctx, db, quoted, row.FieldByIndex(l.fields[i]).Addr().Interface())
		if err != nil {
			return err
		}
		if !takes || slices.Contains(l.keys, i) {
			p.required = append(p.required, quoted)
		}
	}
	var keys []string
	for _, name := range l.keyNames() {
		c, _ := p.column(name, !p.postgres)
		keys = append(keys, c.name)
		p.keys = append(p.keys, quote(c.name))
		p.keyCasts = append(p.keyCasts, c.cast)
		if q := quote(c.name); q == p.by || q == p.until || q == p.token {
			return invalid("row", "column %s changes with every claim and is no key", c.name)
		}
	}
	for _, u := range p.uniques {
		if !slices.ContainsFunc(u, func(name string) bool { return !slices.Contains(keys, name) }) {
			return nil
		}
	}
	return invalid("row", "%s has no primary key or unique index over %s alone, so they are no key of it", p.name,
		strings.Join(p.keys, ", "))
}

// takesNull reports whether the field of a column can hold NULL, as the driver scans it. A sql.Scanner is not tried.
func (p *plan) takesNull(ctx context.Context, db ledger.Conn, column string, field any) (bool, error) {
	if _, scans := field.(sql.Scanner); scans {
		return true, nil
	}
	if !p.postgres {
		field = timely(field)
	}
	takes := true
	err := rows(ctx, db, fmt.Sprintf("SELECT ledgerd_n.%[1]s FROM (SELECT 1) ledgerd_o LEFT JOIN (SELECT %[1]s FROM "+
		"%[2]s LIMIT 0) ledgerd_n ON true", column, p.name), nil, func(scan func(...any) error) error {
		takes = scan(field) == nil
		return nil
	})
	if !takes {
		err = nil // pgx repeats the error of the scan
	}
	return takes, err
}

// hint is the statement that makes the index on the column ExpiresAt, "" if there is such an index.
func (p *plan) hint() string {
	if slices.Contains(p.leading, p.until) {
		return ""
	}
	if p.postgres {
		return fmt.Sprintf("CREATE INDEX ON %s (%s)", p.name, p.until)
	}
	index := strings.TrimSuffix(p.name, `"`) + "_" + p.until[1:] // SQLite needs a name, with the schema of the table
	return fmt.Sprintf("CREATE INDEX %s ON %s (%s)", index, p.bare, p.until)
}

// try lets the database plan the statement of a claim, so that a mistake in the user's condition or order is found when
// the program starts.
func (p *plan) try(ctx context.Context, db ledger.Conn) error {
	agent := any("x")
	switch p.byClass {
	case number:
		agent = int64(0)
	case uuidType:
		agent = uuid.Nil.String()
	}
	query, args := p.pickSQLite(agent, 1)
	if p.postgres {
		query, args = p.claimPostgres(agent, uuid.Nil.String(), 1)
	}
	err := rows(ctx, db, "EXPLAIN "+query, args, func(func(...any) error) error { return nil })
	if mistaken(err) {
		return fmt.Errorf("%w: %s cannot be claimed from: %w", ledger.ErrInvalid, p.name, err)
	}
	return err
}

// mistaken reports whether a database refused SQL because of its text.
func mistaken(err error) bool {
	const sqliteError = 1
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return strings.HasPrefix(state.SQLState(), "42") || strings.HasPrefix(state.SQLState(), "22")
	}
	var coded interface{ Code() int }
	return errors.As(err, &coded) && coded.Code() == sqliteError
}
