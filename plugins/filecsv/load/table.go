package load

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// tableColumn is a column of an existing table.
type tableColumn struct {
	name, declared string
	family         string // N numbers, S text, B booleans, D dates; "" if it takes values of any type
	base           string // the type below a domain, in lower case
}

// reads returns the type by which values for this column are read if no setting names a type. If all of them were
// passed on as text, a setting of the session would decide how a date is read, and a number with a decimal comma would
// be read wrongly.
func (c tableColumn) reads() Type {
	switch {
	case strings.HasSuffix(c.base, "[]"): // the database reads arrays
		return Text
	case c.base == "date":
		return Date
	case strings.HasPrefix(c.base, "timestamp"), c.base == "datetime":
		return Time
	case c.base == "money":
		return Text // the database reads its signs
	case c.base == "smallint":
		return Int16
	case c.base == "integer":
		return Int32
	case c.base == "bigint":
		return Int
	case c.base == "whole64": // SQLite's integers, see selectColumns
		return Whole64
	case c.family == "N", strings.HasPrefix(c.base, "numeric"), strings.HasPrefix(c.base, "decimal"):
		return Decimal
	}
	return Text
}

// columns returns the columns of a table, none if it does not exist.
func (d *Database) columns(ctx context.Context, conn *sql.Conn, table string) (all []tableColumn, err error) {
	rows, err := conn.QueryContext(ctx, d.selectColumns, quoteTable(table))
	if err != nil {
		return nil, d.explain("looking at the table", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c tableColumn
		if err := rows.Scan(&c.name, &c.declared, &c.family, &c.base); err != nil {
			return nil, d.explain("looking at the table", err)
		}
		all = append(all, c)
	}
	return all, d.explain("looking at the table", rows.Err())
}

func namesOf(columns []tableColumn) (names []string) {
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

func indexOf(columns []tableColumn, name string) int {
	return slices.IndexFunc(columns, func(c tableColumn) bool { return c.name == name })
}

// typeNames are the types that people may name in settings, as they write them.
var typeNames = map[Type]string{Int: "int", Decimal: "decimal", Bool: "bool", Date: "date", Time: "time"}

// checkTypes refuses a type that the table's column does not have: its values would be stored as something else, or
// the database would refuse them one by one.
func (l *Load) checkTypes(wanted []Column, names []string, existing []tableColumn) error {
	d := l.database
	for i, w := range wanted {
		column := existing[indexOf(existing, names[i])]
		if w.Type == Text || column.family == "" || strings.Contains(d.takes[w.Type], column.family) {
			continue
		}
		option := "types." + l.job.Columns[l.pick[i]].Name
		change := fmt.Sprintf(d.changeType, quoteTable(l.job.Table), quote(column.name), d.types[w.Type],
			l.job.Item.Kind)
		return &Error{Code: "column_type", Text: fmt.Sprintf(
			"column %q of table %s is %s, and %s=%s needs another type: %s, or load into another table, or leave %s out "+
				"(ledgerd kind set %s --unset %s if the kind keeps it)",
			Shown(column.name), l.job.Table, column.declared, Shown(option), typeNames[w.Type], change, Shown(option),
			l.job.Item.Kind, Shown(option))}
	}
	return nil
}
