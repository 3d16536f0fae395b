// Package query reads the rows of a saved SQL query: a list of work that is a query of a user's database instead of a
// file.
//
// The query is the user's own SQL, so it is trusted as little as possible: it must be one statement, and it runs in a
// transaction that may only read and ends with ctx. Rows are passed on as they come, and none is kept. Both databases
// return values in the same few forms (see [Query.Rows]), so that the same rows make the same items.
package query

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// maxFile is the largest size of a file with a query, in bytes.
const maxFile = 1 << 20

// Query is a saved query that is ready to run.
type Query struct {
	File    string // its name, for messages
	Text    string // one SELECT, without the semicolon at its end
	Columns []Column
	Timeout time.Duration // of Rows; 0: no limit

	source source
}

// Column of the result.
type Column struct {
	Name string
	Type Type
}

// Type is the type of a column, as the database reports it before the query runs.
type Type int

const (
	Any     Type = iota // unknown: SQLite has types of values, not of columns
	Text                // text, and other types that are written as text: dates, UUIDs, enumerations …
	Integer             // whole numbers
	Bool
	Number // other numbers
	JSON
	Bytes
)

// source is the database of a query.
type source interface {
	// describe returns the columns of a query.
	describe(ctx context.Context, text string) ([]Column, error)
	rows(ctx context.Context, q *Query, row func(cells []any) bool) error
	close() error
}

// Error is a database's error about a query.
type Error struct {
	File         string
	Line, Column int // from 1; 0 where the database does not give it
	Message      string
	Hint         string
	Err          error
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.File + ": " + e.Message
	case e.Column == 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrUnreachable is the error if the database of a query cannot be reached.
var ErrUnreachable = errors.New("cannot reach the database of the query")

// Read reads the file of a query.
func Read(file string) (text string, err error) {
	info, err := os.Stat(file)
	if err == nil && info.Size() > maxFile {
		return "", &Error{File: file, Message: fmt.Sprintf("%d bytes; a query has at most %d", info.Size(), maxFile)}
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(file)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", &Error{File: file, Message: "does not exist", Err: err}
	case err != nil:
		return "", &Error{File: file, Message: err.Error(), Err: err}
	case !utf8.Valid(b) || strings.ContainsRune(string(b), 0):
		return "", &Error{File: file, Message: "is not UTF-8"}
	}
	text = strings.TrimPrefix(string(b), "\ufeff")
	if text = strings.TrimRight(text, " \t\r\n;"); strings.TrimSpace(text) == "" {
		return "", &Error{File: file, Message: "is empty: it must hold one SELECT"}
	}
	return text, nil
}

// Close frees the connection.
func (q *Query) Close() error { return q.source.close() }

// Rows runs the query and yields the cells of each row, valid until the next one. A cell is nil (NULL), a string, an
// int64, a float64, a bool, a Decimal (a number in the form of the database), a Raw (JSON) or a []byte. An error,
// usually an *Error, ends the sequence.
func (q *Query) Rows(ctx context.Context) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		if q.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, q.Timeout)
			defer cancel()
		}
		over := false
		err := q.source.rows(ctx, q, func(cells []any) bool {
			over = !yield(cells, nil)
			return !over
		})
		if err != nil && ctx.Err() != nil { // databases report the end of ctx in different ways
			err = ctx.Err()
		}
		if err != nil && !over {
			yield(nil, q.explain(err))
		}
	}
}

// Decimal is a number in the form of its database. JSON has the same form.
type Decimal string

// Raw is a JSON document.
type Raw []byte

// open reads the columns of the query.
func open(ctx context.Context, file, text string, s source) (*Query, error) {
	q := &Query{File: file, Text: text, source: s}
	var err error
	if q.Columns, err = s.describe(ctx, text); err == nil {
		err = q.checkColumns()
	}
	if err != nil {
		return nil, errors.Join(q.explain(err), s.close())
	}
	return q, nil
}

func (q *Query) checkColumns() error {
	seen := map[string]bool{}
	for _, c := range q.Columns {
		if seen[c.Name] {
			return &Error{File: q.File, Message: fmt.Sprintf("there are two columns %q", c.Name),
				Hint: "give one of them another name: … AS name"}
		}
		seen[c.Name] = true
	}
	if len(q.Columns) == 0 {
		return &Error{File: q.File, Message: "gives no rows: it must be one SELECT"}
	}
	return nil
}

// At returns the line and the column of the n-th character of a text, from 1.
func At(text string, n int) (line, column int) {
	line, column = 1, 1
	for _, r := range text {
		if n--; n <= 0 {
			break
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
	}
	return line, column
}

// explain adds the name of the file to a database's error.
func (q *Query) explain(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		known.File = q.File
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{File: q.File, Message: "took longer than " + q.Timeout.String(), Err: err}
	}
	return &Error{File: q.File, Message: err.Error(), Err: err}
}
