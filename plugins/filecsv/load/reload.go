package load

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tagColumn is the column in which rows carry the number of their load, in tables that have it.
const tagColumn = "ledgerd_load"

// markersTable has a marker of each load.
const markersTable = "ledgerd_loads"

// marker records that a round of an item was loaded.
type marker struct {
	round, target, digest string
	attempt, rows         int64
	tag                   sql.NullInt64 // in each of its rows, if the table has a column for it
}

// newerMarker lets a marker take the place of an earlier one of the same round.
const newerMarker = ` ON CONFLICT (identity, round) DO UPDATE SET attempt = excluded.attempt, target = excluded.target,
	row_count = excluded.row_count, sha256 = excluded.sha256, load_id = excluded.load_id, loaded_at = excluded.loaded_at`

// update is the end of an INSERT that updates rows by their key.
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

// earlier looks for what attempts of the item have loaded. The same content for the same round, or by
// a later attempt, is what this attempt was to load: it becomes the load's marker. Other content by
// a later attempt refuses this one. A marker counts only as long as its rows are in the table.
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
			"attempt %d of this item has loaded other content already, and this is attempt %d: it was taken for dead", last.attempt, l.job.Item.Attempt)}
	case l.job.Append:
		return &Error{Code: "loaded_otherwise", Text: fmt.Sprintf(
			"attempt %d has loaded other content for the same round (sha256 %.12s…, table %s), which on_reload=append leaves "+
				"there: --set on_reload=replace",
			last.attempt, last.digest, last.target)}
	}
	return nil
}

// inForce are the markers whose rows are still in their table. Rows of this load do not count for a marker, so
// one that was out of force when the load began stays so.
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

// hasRows reports whether the rows of a marker are in its table. Where rows carry no number of their load, or another
// load may have updated them by their key, a table that is not empty is enough. For a user of the database who may only
// insert, a table that is there is enough.
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

// markers are those of the item's round and of later attempts, the last one last.
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

// supersede removes the rows that were loaded from the same file before. The source of a row is kind and
// key of its item, so another ledger, scope or round replaces them, too.
func (l *Load) supersede(ctx context.Context) error {
	d, item := l.database, l.job.Item
	if l.job.Append || len(l.job.Key) > 0 {
		return nil
	}
	var unknown int64
	err := l.conn.QueryRowContext(ctx, d.countUntagged, item.Kind, item.Key, l.job.Table).Scan(&unknown)
	if err != nil {
		return d.explain("looking for an earlier load", err)
	}
	if unknown > 0 {
		return &Error{Code: "loaded_before", Text: fmt.Sprintf(
			"this file was loaded into table %s before, and the table does not say which rows are from it: --set key=COLUMN "+
				"updates rows by a column, --set on_reload=append loads all once more beside them; for other files from now on: "+
				"ALTER TABLE %s ADD COLUMN %s bigint",
			l.job.Table, l.job.Table, tagColumn)}
	}
	if l.tag == nil {
		return nil
	}
	r, err := l.conn.ExecContext(ctx, "DELETE"+d.tagged(l.job.Table), item.Kind, item.Key)
	if err != nil {
		return d.explain("replacing what was loaded before", err)
	}
	n, err := r.RowsAffected()
	l.done.Replaced += n
	return err
}

// tagged is the end of a statement about the rows of a file, for a table that marks them.
func (d *Database) tagged(table string) string {
	return " FROM " + quoteTable(table) + " WHERE " + tagColumn + " IN (" + d.loadsOf + ")"
}

// RowsOf counts the rows in the job's table that earlier loads have from the file. For a table that does not
// mark them, it is the number of the last load.
func (d *Database) RowsOf(ctx context.Context, job Job) (rows int64, err error) {
	have, err := d.Columns(ctx, job.Table)
	if err != nil || len(have) == 0 {
		return 0, err
	}
	statement, file := d.rowsOfLast, []any{job.Item.Kind, job.Item.Key, job.Table}
	if slices.ContainsFunc(have, func(c Column) bool { return c.Name == tagColumn }) {
		statement, file = "SELECT count(*)"+d.tagged(job.Table), file[:2]
	}
	err = d.db.QueryRowContext(ctx, statement, file...).Scan(&rows)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return rows, d.explain("looking for an earlier load", err)
}
