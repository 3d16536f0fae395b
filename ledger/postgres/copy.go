package postgres

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Many items that are expected to be new are sent by COPY. It costs the server less than INSERT and writes less to the
// log. COPY returns nothing, so ids are drawn before; the ids of a transaction that is undone are never used. COPY has
// no ON CONFLICT: a known key undoes the transaction, and it is repeated with INSERT … ON CONFLICT. The rows arrive in
// the order of the items, as with INSERT, so processes that wait for each other's keys wait in one direction.

// minCopy is the smallest chunk that is copied: two more round trips do not pay for fewer.
const minCopy = 500

// drawIDs takes the next ids. The array is NULL where the role may not use the sequence: an INSERT needs no
// privilege for it.
const drawIDs = `SELECT array_agg(nextval(s.seq))
 FROM (SELECT pg_get_serial_sequence('{{S}}.ledger_items', 'id')::regclass AS seq OFFSET 0) s
 CROSS JOIN generate_series(1, $1::int) WHERE has_sequence_privilege(s.seq, 'USAGE')`

// copyChunk inserts items that are expected to be new, with their rows of the backlog. copied is false if the user may
// not draw ids; then nothing was inserted.
func (t *tx) copyChunk(o *own, items []ledger.Record, ids []int64) (copied bool, err error) {
	if err := t.withNow(); err != nil {
		return false, err
	}
	var drawn []int64
	if err := o.query(drawIDs, []any{len(items)}, func(scan scanner) error { return scan(&drawn) }); err != nil {
		return false, err
	}
	if len(drawn) == 0 {
		return false, nil
	}
	err = o.copyIn(copyItems, len(items), func(b []byte, i int) []byte {
		return appendItem(b, drawn[i], &items[i], t.now)
	})
	if uniqueViolation(err) {
		t.s.newness.Store(someNew)
		return false, keyNotNew{err}
	}
	if err == nil {
		err = o.copyIn(copyBacklog, len(items), func(b []byte, i int) []byte {
			return appendBacklogRow(b, drawn[i], &items[i], t.now)
		})
	}
	if err != nil {
		return false, err
	}
	copy(ids, drawn)
	t.queuedAll(items, ids)
	return true, nil
}

// copyIn runs a COPY of n rows.
func (o *own) copyIn(template string, n int, row func(b []byte, i int) []byte) error {
	if err := o.flush(); err != nil {
		return err
	}
	_, o.failed = o.pipe.conn.PgConn().CopyFrom(o.ctx, newCopyRows(n, row), o.s.render(template))
	return o.failed
}

// copyRows are the rows of a COPY in binary format. A row is encoded just before it is sent, while the server works on
// the rows before.
type copyRows struct {
	encoded bytes.Buffer // not read yet
	next, n int
	row     func(b []byte, i int) []byte // appends row i
}

// The format begins with a signature, flags and an extension, and ends with a row of −1 fields.
const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyTrailer = "\xff\xff"
)

func newCopyRows(n int, row func(b []byte, i int) []byte) *copyRows {
	r := &copyRows{n: n, row: row}
	r.encoded.WriteString(copyHeader)
	return r
}

// Read implements io.Reader.
func (r *copyRows) Read(p []byte) (int, error) {
	for r.encoded.Len() < len(p) && r.next < r.n {
		r.encoded.Write(r.row(r.encoded.AvailableBuffer(), r.next))
		if r.next++; r.next == r.n {
			r.encoded.WriteString(copyTrailer)
		}
	}
	return r.encoded.Read(p)
}

// A row is the number of its fields, then the fields. A field is its length in bytes, then its value in binary format.

func appendCount(b []byte, fields int) []byte {
	return binary.BigEndian.AppendUint16(b, uint16(fields))
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendNull(b []byte) []byte { return append(b, 0xff, 0xff, 0xff, 0xff) }

// appendOrNull appends a value, or NULL if it is empty.
func appendOrNull[T string | []byte](b []byte, s T) []byte {
	if len(s) == 0 {
		return appendNull(b)
	}
	return appendBytes(b, s)
}

func appendInt16(b []byte, n int16) []byte {
	return binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(n))
}

func appendInt32(b []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(n))
}

func appendInt64(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(n))
}

// year2000 is the time from which Postgres counts microseconds.
var year2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func appendTime(b []byte, t time.Time) []byte { return appendInt64(b, t.UnixMicro()-year2000) }
