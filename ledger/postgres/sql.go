package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Statements are templates: {{S}} stands for the quoted schema, {{NOW}} for the database's
// clock. In a condition the clock is (SELECT {{NOW}}), evaluated once; bare, it is volatile
// and no index would serve the condition.

// render makes SQL of a template.
func (s *Store) render(template string) string {
	if s.clock != nil {
		now := "'" + s.clock().UTC().Format("2006-01-02 15:04:05.999999") + "+00'::timestamptz"
		return strings.NewReplacer("{{S}}", s.schema, "{{NOW}}", now).Replace(whole(template))
	}
	if sql, ok := s.rendered.Load(template); ok {
		return sql.(string)
	}
	sql := strings.NewReplacer("{{S}}", s.schema, "{{NOW}}", "clock_timestamp()").Replace(whole(template))
	s.rendered.Store(template, sql)
	return sql
}

// whole puts in what statements that the stores share name.
func whole(template string) string {
	return sharedWords.Replace(sqlstore.ForPostgres(template))
}

var sharedWords = strings.NewReplacer("{{LEASED}}", leased, "{{HOLDING}}", holding, "{{READY}}", isReady,
	"{{FILED}}", filedRows, "{{RUNNING}}", runningRows)

// Lists of ids hide in a sub-select, so that the planner takes them for short ones and looks up
// row by row. Where it knows that there are 500 it rather reads a table of up to a hundred
// thousand rows as a whole (a finish took 20 ms instead of 5), or even wakes parallel workers.

// listed is the condition that a column is in the list $1 of ids.
const listed = ` = ANY((SELECT $1::bigint[])::bigint[])`

// unnest makes rows of the first parameters, arrays of the given types.
func unnest(types ...string) string {
	lists := make([]string, len(types))
	for i, t := range types {
		lists[i] = fmt.Sprintf("(SELECT $%d::%s[])", i+1, t)
	}
	return "unnest(" + strings.Join(lists, ", ") + ")"
}

// quote writes an identifier.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// Zero values of the model are NULL in the database.

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// pgUUID is the form of a token that pgx need not take apart as text; the zero one is NULL.
func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != uuid.Nil} }
