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

// Statements are templates: {{S}} stands for the quoted schema, {{NOW}} for the database's clock. These rules keep them
// right in any search_path, and their plans good on stale statistics:
//   - A table has its schema: {{S}}.ledger_items.
//   - In a condition the clock is (SELECT {{NOW}}), evaluated once; bare, it is volatile, and no index would serve the
//     condition.
//   - A sub-select picks rows of ledger_backlog. The condition of the UPDATE or DELETE around it names no state, due_at
//     or expires_at: these would make partial indexes eligible there.
//   - There is no IN (SELECT … LIMIT n): it may run again, and take more than n rows.
//   - There is no LIKE: it gives characters of the user's text a meaning.

// The SQL of up to maxRendered templates of up to maxTemplate bytes is kept: filters have endless forms.
const maxRendered, maxTemplate = 2000, 16 << 10

// render makes SQL of a template.
func (s *Store) render(template string) string {
	if s.clock != nil {
		now := "'" + s.clock().UTC().Format("2006-01-02 15:04:05.999999") + "+00'::timestamptz"
		return strings.NewReplacer("{{S}}", s.schema, "{{NOW}}", now).Replace(expand(template))
	}
	if sql, ok := s.rendered.Load(template); ok {
		return sql.(string)
	}
	sql := strings.NewReplacer("{{S}}", s.schema, "{{NOW}}", "clock_timestamp()").Replace(expand(template))
	if len(template) > maxTemplate {
		return sql
	}
	if s.kept.Add(1) > maxRendered {
		s.rendered.Clear()
		s.kept.Store(1)
	}
	s.rendered.Store(template, sql)
	return sql
}

// expand replaces the words of package sqlstore, such as {{READY}}, by SQL.
func expand(template string) string {
	return sharedWords.Replace(sqlstore.ForPostgres(template))
}

var sharedWords = strings.NewReplacer("{{LEASED}}", leased, "{{HOLDING}}", holding, "{{READY}}", isReady,
	"{{FILED}}", filedRows, "{{RUNNING}}", runningRows)

// listed is the condition that a column is in the list $1 of ids. The list is hidden in a sub-select, so that the
// planner takes it for a short one and looks up row by row. If it knew that there are 500 ids, it would read a table of
// up to 100,000 rows as a whole (a finish took 20 ms instead of 5), or even use parallel workers.
const listed = ` = ANY((SELECT $1::bigint[])::bigint[])`

// unnest makes rows of the first parameters, arrays of the given types. They are hidden as in listed.
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

// pgUUID is a token in the form that pgx sends without parsing a text. The zero token is NULL.
func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != uuid.Nil} }
