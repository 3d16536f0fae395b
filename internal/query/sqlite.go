package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	_ "github.com/ledgerd/ledgerd/ledger/sqlite" // registers its driver: two SQLite libraries in one process damage a file
)

type sqliteFile struct{ db *sql.DB }

// SQLite opens a file and prepares the query there. The file is opened for reading only.
func SQLite(ctx context.Context, path, file, text string) (*Query, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	options := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)", "temp_store(FILE)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	db.SetMaxOpenConns(1)
	return open(ctx, file, text, &sqliteFile{db})
}

func (s *sqliteFile) close() error { return s.db.Close() }

// describe reads no row, but it has to run the query, since SQLite gives the names of columns only then. It encloses
// the query in another one, so that it can only be a SELECT.
func (s *sqliteFile) describe(ctx context.Context, text string) ([]Column, error) {
	if !oneStatement(text) {
		return nil, &Error{Message: "must be one SELECT, and has a semicolon", Hint: "make a file of each SELECT"}
	}
	rows, err := s.db.QueryContext(ctx, "SELECT * FROM (\n"+text+"\n) LIMIT 0")
	if err != nil {
		return nil, near(text, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	columns := make([]Column, len(names))
	for i, name := range names {
		if m := numbered().FindStringSubmatch(name); m != nil { // SQLite numbers a name that an earlier column has
			if j := slices.IndexFunc(names[:i], func(n string) bool { return strings.EqualFold(n, m[1]) }); j >= 0 {
				name = names[j]
			}
		}
		columns[i].Name = name
	}
	return columns, errors.Join(err, rows.Err())
}

// numbered matches the names that SQLite gives to further columns of the same name. A column that is called so, beside
// one of that name, is refused like these.
var numbered = lazyregexp.New(`(?s)^(.*):[0-9]+$`)

// notCode matches the places where a semicolon is no separator: a string, a quoted name, a comment.
var notCode = lazyregexp.New("'[^']*'|\"[^\"]*\"|`[^`]*`|\\[[^\\]]*\\]|--[^\n]*|/\\*(?s:.*?)(?:\\*/|$)")

// oneStatement reports whether SQL is one statement, without a semicolon. The driver runs all statements of a text, so
// a text between parentheses could close them and continue with another statement.
func oneStatement(sql string) bool {
	return !strings.ContainsAny(notCode().ReplaceAllString(sql, " "), ";\x00")
}

// rows reads each column as an expression. For a plain column the driver would convert values to times and booleans, by
// the declared type.
func (s *sqliteFile) rows(ctx context.Context, q *Query, row func(cells []any) bool) error {
	list := make([]string, len(q.Columns))
	for i, c := range q.Columns {
		list[i] = `+"` + strings.ReplaceAll(c.Name, `"`, `""`) + `"`
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+strings.Join(list, ", ")+" FROM (\n"+q.Text+"\n)")
	if err != nil {
		return near(q.Text, err)
	}
	defer rows.Close()
	cells, into := make([]any, len(list)), make([]any, len(list))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if !row(cells) {
			return nil
		}
	}
	return near(q.Text, errors.Join(rows.Err(), ctx.Err()))
}

var (
	nearToken  = lazyregexp.New(`near "([^"]+)": syntax error`)
	noSuchName = lazyregexp.New(`no such (?:column|table|function): (\S+)`)
	rcNumber   = lazyregexp.New(`^SQL logic error: (.*) \(\d+\)$`)
)

// near returns SQLite's error with the place of the word that SQLite names, if the text has this word once. SQLite
// gives no place.
func near(text string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &Error{Message: err.Error(), Err: err}
	if m := rcNumber().FindStringSubmatch(e.Message); m != nil {
		e.Message = m[1]
	}
	for _, complaint := range []*regexp.Regexp{nearToken(), noSuchName()} {
		m := complaint.FindStringSubmatch(e.Message)
		if m == nil || m[1] == ")" { // it may be the one that encloses the text
			continue
		}
		places := regexp.MustCompile(`(?i)(^|\W)`+regexp.QuoteMeta(m[1])).FindAllStringIndex(text, 2)
		if len(places) == 1 {
			end := len([]rune(text[:places[0][1]]))
			e.Line, e.Column = At(text, end-len([]rune(m[1]))+1)
		}
	}
	return e
}
