package load

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tagColumn is the column with the number of the load, in tables that have it.
const tagColumn = "ledgerd_load"

// markersTable holds a marker of each load.
const markersTable = "ledgerd_loads"

// marker records that a round of an item was loaded.
type marker struct {
	round, target, digest string
	attempt, rows         int64
	tag                   sql.NullInt64 // the number of the load in each of its rows, if the table has a column for it
}

// newerMarker makes a marker replace an earlier one of the same round.
const newerMarker = ` ON CONFLICT (identity, round) DO UPDATE SET attempt = excluded.attempt, target = excluded.target,
	row_count = excluded.row_count, sha256 = excluded.sha256, load_id = excluded.load_id, loaded_at = excluded.loaded_at`

// update returns the end of an INSERT that updates rows by their key.
func (to into) update() string {
	if len(to.key) == 0 {
		return ""
	}
	var sets []string
	for _, c := range to.columns {
		if !slices.Contains(to.key, c) {
			sets = append(sets, quote(c)+" = excluded."+quote(c))
		}
	}
	if len(sets) == 0 {
		return " ON CONFLICT (" + quoteAll(to.key) + ") DO NOTHING"
	}
	return " ON CONFLICT (" + quoteAll(to.key) + ") DO UPDATE SET " + strings.Join(sets, ", ")
}

// earlier looks for the loads of earlier and later attempts of the item. The same content for the same round, or by a
// later attempt, is what this attempt was to load: it becomes the load's marker. If a later attempt has loaded other
// content, this one is refused. A marker counts only while its rows are in the table.
func (l *Load) earlier(ctx context.Context, digest func() (string, error)) error {
	found, err := l.database.markers(ctx, l.conn, l.job.Item)
	if err == nil {
		found, err = l.inForce(ctx, found)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	sum, err := digest()
	if err != nil {
		return err
	}
	last := found[len(found)-1]
	same := last.digest == sum && last.target == l.job.Table
	switch {
	case same:
		l.marker = &last
	case last.attempt > l.job.Item.Attempt:
		return &Error{Code: "stale", Again: true, Text: fmt.Sprintf(
			"attempt %d of this item has loaded other content already, and this is attempt %d: it was taken for dead. If "+
				"another ledger has loaded the file, and only then: UPDATE ledgerd_loads SET identity = identity || loaded_at "+
				"WHERE identity = '%s'", last.attempt, l.job.Item.Attempt, l.job.Item.identity())}
	case l.job.Reload == Append:
		return &Error{Code: "loaded_otherwise", Text: fmt.Sprintf(
			"attempt %d has loaded other content for the same round (sha256 %.12s…, table %s), which on_reload=append leaves "+
				"there: --set on_reload=replace",
			last.attempt, last.digest, last.target)}
	}
	return nil
}

// inForce returns the markers whose rows are still in their table. The rows of this load do not count for a marker: a
// marker that was out of force at the start stays so.
func (l *Load) inForce(ctx context.Context, found []marker) (valid []marker, err error) {
	for _, m := range found {
		if slices.Contains(l.gone, m) {
			continue
		}
		there, err := l.hasRows(ctx, m)
		if err != nil {
			return nil, err
		}
		if there {
			valid = append(valid, m)
		} else {
			l.gone = append(l.gone, m)
		}
	}
	return valid, nil
}

// hasRows reports whether the rows of a marker are in its table. If rows have no number of their load, or another
// load may have updated them by key, a table that is not empty is enough. If the database user may only insert, an
// existing table is enough.
func (l *Load) hasRows(ctx context.Context, m marker) (bool, error) {
	d := l.database
	have, err := d.columns(ctx, l.conn, m.target)
	if err != nil || len(have) == 0 || m.rows == 0 {
		return len(have) > 0, err
	}
	least, counted := int64(1), "(SELECT 1 FROM "+quoteTable(m.target)+" LIMIT 1) AS one"
	if m.tag.Valid && len(l.job.Key) == 0 && indexOf(have, tagColumn) >= 0 {
		least, counted = m.rows, fmt.Sprintf("%s WHERE %s = %d", quoteTable(m.target), tagColumn, m.tag.Int64)
	}
	var rows int64
	err = d.explain("looking for an earlier load", l.conn.QueryRowContext(ctx, "SELECT count(*) FROM "+
		counted).Scan(&rows))
	if e, ok := errors.AsType[*Error](err); ok && e.Code == "forbidden" {
		return true, nil
	}
	return rows >= least, err
}

// markers returns the markers of the item's round and of later attempts, the newest last.
func (d *Database) markers(ctx context.Context, conn *sql.Conn, item Item) (found []marker, err error) {
	rows, err := conn.QueryContext(ctx, d.selectMarkers, item.identity(), item.Round, item.Attempt)
	if err != nil {
		return nil, d.explain("looking for an earlier load", err)
	}
	defer rows.Close()
	for rows.Next() {
		var m marker
		if err := rows.Scan(&m.round, &m.attempt, &m.target, &m.rows, &m.digest, &m.tag); err != nil {
			return nil, d.explain("looking for an earlier load", err)
		}
		found = append(found, m)
	}
	return found, d.explain("looking for an earlier load", rows.Err())
}

// supersede removes the rows that were loaded from the same file before. The kind and the key of an item identify the
// file, so another ledger, scope or round replaces them, too.
func (l *Load) supersede(ctx context.Context) error {
	d, item := l.database, l.job.Item
	if !l.replacing() {
		return nil
	}
	if err := l.refuseUntagged(ctx); err != nil || l.tag == nil {
		return err
	}
	if err := l.refuseOther(ctx); err != nil {
		return err
	}
	r, err := l.conn.ExecContext(ctx, "DELETE"+d.tagged(l.job.Table), l.job.replaces(), item.Key)
	if err != nil {
		return d.explain("replacing what was loaded before", err)
	}
	n, err := r.RowsAffected()
	l.done.Replaced += n
	return err
}

// replacing reports whether earlier rows of the file are removed.
func (l *Load) replacing() bool { return l.job.Reload != Append && len(l.job.Key) == 0 }

// replaces returns the kind whose loads of the file are replaced; "" means any.
func (j *Job) replaces() string {
	if j.Item.IsFile && j.Reload == ReplaceAll {
		return ""
	}
	return j.Item.Kind
}

// refuseUntagged refuses a file if the table has rows of it without the number of their load.
func (l *Load) refuseUntagged(ctx context.Context) error {
	d, item := l.database, l.job.Item
	kind, ofKind := "", item.Kind
	if item.IsFile && l.job.Reload != ReplaceOwn {
		ofKind = "" // any
	}
	err := l.conn.QueryRowContext(ctx, d.untagged, ofKind, item.Key, l.job.Table).Scan(&kind)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return d.explain("looking for an earlier load", err)
	}
	by := ""
	if kind != item.Kind {
		by = " by kind " + Shown(kind)
	}
	return &Error{Code: "loaded_before", Text: fmt.Sprintf(
		"this file was loaded into table %s before%s, and the table does not say which rows are from it: --set key=COLUMN "+
			"updates rows by a column, --set on_reload=append loads all once more beside them; for other files from now on: "+
			"ALTER TABLE %s ADD COLUMN %s bigint",
		l.job.Table, by, l.job.Table, tagColumn)}
}

// refuseOther refuses a file if the table has rows of it from another kind, and none from this one. If the table has
// rows of both, a person chose that.
func (l *Load) refuseOther(ctx context.Context) error {
	d, item := l.database, l.job.Item
	if l.had || !item.IsFile || l.job.Reload == ReplaceAll || l.job.Reload == ReplaceOwn {
		return nil
	}
	rows, err := l.conn.QueryContext(ctx, fmt.Sprintf(d.kindsOf, quoteTable(l.job.Table)), item.Kind, item.Key)
	if err != nil {
		return d.explain("looking for an earlier load", err)
	}
	defer rows.Close()
	var kinds []string
	for rows.Next() {
		var kind string
		if err := rows.Scan(&kind); err != nil {
			return d.explain("looking for an earlier load", err)
		}
		kinds = append(kinds, kind)
	}
	l.had = slices.Contains(kinds, item.Kind)
	if err := rows.Err(); err != nil || len(kinds) == 0 || l.had {
		return d.explain("looking for an earlier load", err)
	}
	return &Error{Code: "other_kind", Text: fmt.Sprintf(
		"kind %s has loaded this file into table %s, and its rows would be there twice: run it with that kind, or --set "+
			"on_reload=replace_all takes the place of its rows, on_reload=append or replace_own loads it beside them",
		Shown(kinds[0]), l.job.Table)}
}

// tagged returns the end of a statement about the rows of a file, for a table with load numbers.
func (d *Database) tagged(table string) string {
	return " FROM " + quoteTable(table) + " WHERE " + tagColumn + " IN (" + d.loadsOf + ")"
}

// RowsOf counts the rows of the file in the job's table. For a table without load numbers, it is the number that the
// last load recorded.
func (d *Database) RowsOf(ctx context.Context, job Job) (rows int64, err error) {
	have, err := d.Columns(ctx, job.Table)
	if err != nil || len(have) == 0 {
		return 0, err
	}
	statement, file := d.rowsOfLast, []any{job.replaces(), job.Item.Key, job.Table}
	if slices.ContainsFunc(have, func(c Column) bool { return c.Name == tagColumn }) {
		statement, file = "SELECT count(*)"+d.tagged(job.Table), file[:2]
	}
	err = d.db.QueryRowContext(ctx, statement, file...).Scan(&rows)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return rows, d.explain("looking for an earlier load", err)
}
