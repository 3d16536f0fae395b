package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/ledger/tables"
	"github.com/ledgerd/ledgerd/schema"
)

var _ tables.Store = (*Store)(nil)

// ReadTables implements tables.Store. While it runs, the writes of others stay in the write-ahead log.
func (s *Store) ReadTables(ctx context.Context, fn func(tables.Reader) error) error {
	return s.read(ctx, true, func(r session) error { return fn(&tablesOf{session: r}) })
}

// WriteTables implements tables.Store.
func (s *Store) WriteTables(ctx context.Context, fn func(tables.Writer) error) error {
	return s.write(ctx, true, func(t *turn) error { return fn(&tablesOf{session: t}) })
}

// tablesOf are the tables in a session.
type tablesOf struct {
	session
	blobs map[string]bool // "table.column"
}

func (s *tablesOf) Tables() ([]tables.Table, error) {
	all := []tables.Table{{Name: schema.Meta, Key: []string{"k"}}}
	for _, t := range schema.Tables {
		if !t.Apart {
			all = append(all, tables.Table{Name: t.Name, Key: t.Key})
		}
	}
	for i := range all {
		err := s.query("SELECT name FROM pragma_table_info(?1)", func(r row) error {
			all[i].Columns = append(all[i].Columns, r.text(0))
			return nil
		}, all[i].Name)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// exact is a value that is written unchanged: zero and empty are not NULL.
type exact struct{ driver.Value }

// exactly returns the values of a row as arguments.
func exactly(r tables.Row) []any {
	args := make([]any, len(r))
	for i, v := range r {
		if b, ok := v.([]byte); ok && len(b) == 0 {
			v = "" // an empty slice would be NULL; columns of bytes are cast
		}
		args[i] = exact{v}
	}
	return args
}

func (s *tablesOf) Scan(t tables.Table, each func(tables.Row) error) error {
	values := make(tables.Row, len(t.Columns))
	query := "SELECT " + strings.Join(t.Columns, ", ") + " FROM " + t.Name + " ORDER BY " + strings.Join(t.Key, ", ")
	return s.query(query, func(r row) error {
		for i, v := range r {
			if b, ok := v.([]byte); ok && b == nil {
				v = []byte{} // the driver's form of bytes that are empty
			}
			values[i] = v
		}
		return each(values)
	})
}

func (s *tablesOf) Empty(t tables.Table) (empty bool, err error) {
	err = s.query("SELECT NOT EXISTS (SELECT 1 FROM "+t.Name+")", func(r row) error {
		empty = r.int(0) == 1
		return nil
	})
	return empty, err
}

func (s *tablesOf) Insert(t tables.Table, rows []tables.Row) error {
	if s.blobs == nil {
		s.blobs = map[string]bool{}
		err := s.query("SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' "+
			"AND c.type = 'BLOB'", func(r row) error {
			s.blobs[r.text(0)+"."+r.text(1)] = true
			return nil
		})
		if err != nil {
			return err
		}
	}
	places := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		if places[i] = "?"; s.blobs[t.Name+"."+c] {
			places[i] = "CAST(? AS BLOB)"
		}
	}
	query := "INSERT INTO " + t.Name + " (" + strings.Join(t.Columns, ", ") + ") VALUES (" + strings.Join(places, ", ") +
		")"
	for _, r := range rows {
		if _, err := s.exec(query, exactly(r)...); err != nil {
			return err
		}
	}
	return nil
}

func (s *tablesOf) SetMeta(key, value string) error {
	_, err := s.exec("INSERT INTO ledger_meta (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v", key,
		value)
	return err
}

// numbered reports whether the table never gives the same number twice.
func (s *tablesOf) numbered(t tables.Table) (yes bool, err error) {
	err = s.query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1 AND instr(sql, 'AUTOINCREMENT') > 0",
		func(row) error {
			yes = true
			return nil
		}, t.Name)
	return yes, err
}

func (s *tablesOf) Sequence(t tables.Table) (last int64, err error) {
	if numbered, err := s.numbered(t); err != nil || !numbered {
		return 0, err
	}
	err = s.query("SELECT seq FROM sqlite_sequence WHERE name = ?1", func(r row) error {
		last = r.int(0)
		return nil
	}, t.Name)
	return last, err
}

func (s *tablesOf) SetSequence(t tables.Table, last int64) error {
	if numbered, err := s.numbered(t); err != nil || !numbered {
		return err
	}
	changed, err := s.exec("UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = ?2", last, t.Name)
	if err == nil && changed.changes == 0 {
		_, err = s.exec("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", t.Name, last)
	}
	if err != nil {
		return fmt.Errorf("sequence of %s: %w", t.Name, err)
	}
	return nil
}
