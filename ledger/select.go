package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Selection is what a query in the ledger's own database adds, without its rows leaving it.
type Selection struct {
	Kind, Scope, Source string
	Priority            int16
	Due                 time.Time // as in NewItem
	// Query is one SELECT without parameters; Key is its column that is the key, of which spaces
	// at both ends are cut. It may only read.
	Query, Key string
	// Fields make the payload, a JSON object with its names in order; without any there is none.
	Fields []Field
	// Sample, if it is not 0, is how many items of Source, unless that is "", the scope is to have: those
	// that it lacks are added, the first in the order of [Rank] of those whose key is not known there.
	// So several that draw the same sample at once draw it once.
	Sample int
	Seed   string
	// Try answers what would be added, and adds nothing.
	Try bool
}

// Field is one field of the payload of a Selection.
type Field struct {
	Name   string
	Value  json.RawMessage `json:",omitempty"` // the same for all; nil: it is in a column
	Column string          // a row in which it is NULL has no such field
	Text   bool            // text, whatever the type of the column
	Trim   bool            // cut spaces as of the key
	// Rows that break these make no item.
	Required bool // not NULL
	MaxChars int  // characters of a text; 0: no limit but that of the payload
}

// Null and Long say what is wrong with a row that breaks a rule of the field.
func (f *Field) Null() string { return fmt.Sprintf("column %q is NULL", f.Column) }

// Long is for a text that is too long.
func (f *Field) Long() string {
	return number.Sprintf("column %q has more than %d characters", f.Column, f.MaxChars)
}

// Selected is the answer to a Selection. Rows = Added + Known + Differs + BadRows, but for a
// sample, where Known is what the rows of the query named that was known before.
type Selected struct {
	Rows    int64 // of the query
	Added   int64
	Known   int64 // the rows whose key was known, also from an earlier row
	Differs int64 // known with another payload
	BadRows int64
	Bad     []BadRow // the first MaxBadRows of them
}

// BadRow is a row of a query that makes no item.
type BadRow struct {
	Row    int64 // from 1
	Reason string
}

// MaxBadRows bounds the bad rows that a Selected names.
const MaxBadRows = 100

// QueryError is what the database says of the query of a Selection.
type QueryError struct {
	Message  string
	Position int // of a character in the query, from 1; 0 where the database does not say it
	Err      error
}

func (e *QueryError) Error() string { return "query: " + e.Message }
func (e *QueryError) Unwrap() error { return e.Err }

// Selecter is a Store on a database in which users may have tables of their own.
type Selecter interface {
	// Select adds what is new of a Selection and touches nothing that is known. The error of the
	// query itself is a *QueryError. Where the database does not let it, or cannot express it, it
	// is errors.ErrUnsupported and nothing was done.
	Select(ctx context.Context, s Selection) (Selected, error)
}

// AddSelect adds the rows of a query in the ledger's own database, without shipping them, by the
// rules of Add: what is known stays as it is. The result is that of adding the rows one by one
// with [Selection.Payload], byte for byte. On Postgres it is all or nothing; on SQLite it is
// done in short steps, and what was added stays added when it is broken off: repeat it.
//
// Errors: errors.ErrUnsupported where this store cannot do it, *QueryError, *InvalidError.
func (l *Ledger) AddSelect(ctx context.Context, s Selection) (Selected, error) {
	store, ok := l.store.(Selecter)
	if !ok {
		return Selected{}, fmt.Errorf("adding by a query: %w", errors.ErrUnsupported)
	}
	n := NewItem{Kind: s.Kind, Scope: s.Scope, Key: "-", Source: s.Source, Priority: s.Priority, Due: s.Due}
	if err := CheckItem(n); err != nil {
		return Selected{}, err
	}
	if err := l.fit(ctx, nil); err != nil {
		return Selected{}, err
	}
	s.Due = s.Due.UTC().Truncate(time.Microsecond)
	if !s.Try {
		if err := l.store.Update(ctx, nil, func(tx Tx) error { return l.ensureKinds(tx, []NewItem{n}) }); err != nil {
			return Selected{}, err
		}
	}
	done, err := store.Select(ctx, s)
	if err == nil && done.Added > 0 && !s.Try {
		l.announce([]string{s.Kind})
	}
	return done, err
}

// Rank orders the keys of a sample, as bytes: a SHA-256, so that for any seed each set of keys is
// as likely as any other to come first, and the same on every database.
func Rank(seed, key string) [sha256.Size]byte {
	return sha256.Sum256([]byte(seed + ":" + key))
}

// Spaces are what is cut off both ends of a key: what strings.TrimSpace cuts.
const Spaces = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// NewBadRow says why a row makes no item: null is of its key, the lengths are in bytes.
func NewBadRow(row int64, null bool, key, payload int) BadRow {
	switch {
	case null:
		return BadRow{row, "the key is NULL"}
	case key == 0:
		return BadRow{row, "blank key"}
	case key > MaxKey:
		return BadRow{row, number.Sprintf("key: %d bytes, at most %d", key, MaxKey)}
	}
	return BadRow{row, number.Sprintf("payload: %d bytes, at most %d", payload, MaxPayload)}
}

// Ordered are the fields in the order of the payload.
func (s *Selection) Ordered() []Field {
	return slices.SortedFunc(slices.Values(s.Fields), func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
}

// JSON is the field as it stands in the payload, as far as it is the same for all rows.
func (f *Field) JSON() string {
	if f.Value == nil {
		return string(JSON(f.Name)) + ":"
	}
	object := JSON(map[string]json.RawMessage{f.Name: f.Value})
	return string(object[1 : len(object)-1])
}

// Payload makes the payload of a row; cells are by column.
func (s *Selection) Payload(cell func(column string) any) ([]byte, error) {
	if len(s.Fields) == 0 {
		return nil, nil
	}
	object := make(map[string]json.RawMessage, len(s.Fields))
	for _, f := range s.Fields {
		if f.Value != nil {
			object[f.Name] = f.Value
			continue
		}
		v := cell(f.Column)
		if v == nil && f.Required {
			return nil, errors.New(f.Null())
		} else if v == nil {
			continue
		}
		text, err := CellText(v)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Column, err)
		}
		if f.Trim {
			text = strings.TrimSpace(text)
			v = text
		}
		if f.MaxChars > 0 && utf8.RuneCountInString(text) > f.MaxChars {
			return nil, errors.New(f.Long())
		}
		value, err := CellJSON(v, f.Text)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Column, err)
		}
		object[f.Name] = value
	}
	if len(object) == 0 {
		return nil, nil
	}
	return JSON(object), nil
}

var (
	errBlob = errors.New("is bytes, not text: convert it in the query")
	errText = errors.New("is no text: not UTF-8, or with a NUL")
)

// CellJSON is a value of a row of a query as JSON; with text it is a string whatever it is. A
// value is a string, int64, float64, bool, json.Number or json.RawMessage.
func CellJSON(v any, text bool) (json.RawMessage, error) {
	switch v.(type) {
	case int64, bool, json.Number:
		if t, err := CellText(v); !text {
			return json.RawMessage(t), err
		}
	case float64:
		if f := v.(float64); !text && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return json.Marshal(f)
		}
	case json.RawMessage:
		if !text {
			return v.(json.RawMessage), nil
		}
	}
	t, err := CellText(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// CellText is a value of a row of a query as text.
func CellText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		c := checker{}
		if c.text("", v, math.MaxInt); c.err != nil {
			return "", errText
		}
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		return v.String(), nil
	case json.RawMessage:
		return string(v), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		}
		b, err := json.Marshal(v)
		return string(b), err
	}
	return "", errBlob
}
