package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
)

// Select implements ledger.Selecter. The rows of the query go into a temporary table, so that what
// follows sees the same ones: what is new of them is inserted, and what was known is counted by a
// statement of its own, which alone sees what others have added meanwhile. The query itself runs
// in a savepoint that may not write.
func (s *Store) Select(ctx context.Context, sel ledger.Selection) (out ledger.Selected, err error) {
	var bad *ledger.QueryError
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		out = ledger.Selected{}
		x := &selecting{own: &own{ctx: ctx, s: s, pipe: pipe{conn: c}}, Selection: sel, out: &out}
		t := newTx(s, x.own)
		err := x.run(t)
		if errors.As(err, &bad) {
			x.rollback()
			return nil
		}
		if err != nil || sel.Try {
			x.rollback()
			t.end(false)
			return uncommitted(err)
		}
		err = x.commit()
		t.end(err == nil)
		return err
	})
	if err == nil && bad != nil {
		err = bad
	}
	return out, err
}

// selecting is one try of a Select.
type selecting struct {
	*own
	ledger.Selection
	out *ledger.Selected
}

func (x *selecting) run(t *tx) error {
	types, err := x.describe()
	if err != nil {
		return err
	}
	pick, args, err := x.pick(types)
	if err != nil {
		return err
	}
	err = x.query(`CREATE TEMPORARY TABLE ledger_picked (o bigint, key text COLLATE "C", bad text, payload text) ON COMMIT DROP`, nil, nil)
	if state(err) == "42501" { // the user may make no temporary tables
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	// Bitmap scans are off for what the ledger does; the query is somebody else's.
	for _, statement := range []string{`SET LOCAL enable_bitmapscan = on`, `SAVEPOINT query`, `SET TRANSACTION READ ONLY`} {
		if err == nil {
			err = x.query(statement, nil, nil)
		}
	}
	if err != nil {
		return err
	}
	if _, err := x.pipe.conn.Exec(x.ctx, pick, append([]any{pgx.QueryExecModeDescribeExec}, args...)...); err != nil {
		if bad, ok := errors.AsType[*pgconn.PgError](err); ok && bad.Position > 0 { // the query alone was understood
			return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		return x.ofQuery(err)
	}
	for _, statement := range []string{`RELEASE query`, `SET LOCAL enable_bitmapscan = off`, `ANALYZE ledger_picked`} {
		if err := x.query(statement, nil, nil); err != nil {
			return err
		}
	}
	if err := x.count(); err != nil {
		return err
	}
	return x.insert(t)
}

// describe finds the types of the query's columns.
func (x *selecting) describe() (map[string]uint32, error) {
	if err := x.query(`SELECT`, nil, nil); err != nil { // begins the transaction
		return nil, err
	}
	d, err := x.pipe.conn.PgConn().Prepare(x.ctx, "", x.Query, nil)
	if err != nil {
		return nil, x.ofQuery(err)
	}
	if len(d.ParamOIDs) > 0 {
		return nil, &ledger.QueryError{Message: "has parameters ($1 …), which nobody fills in"}
	}
	types := map[string]uint32{}
	for _, f := range d.Fields {
		types[f.Name] = f.DataTypeOID
	}
	return types, nil
}

// ofQuery tells what is wrong with the query from what is wrong with the database.
func (x *selecting) ofQuery(err error) error {
	bad, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || rolledBack(err) || bad.Code == "57014" || strings.HasPrefix(bad.Code, "57P") || strings.HasPrefix(bad.Code, "53") {
		return err
	}
	return &ledger.QueryError{Message: bad.Message, Position: int(bad.Position), Err: err}
}

func state(err error) string {
	if bad, ok := errors.AsType[*pgconn.PgError](err); ok {
		return bad.Code
	}
	return ""
}

// written is a value as Postgres writes it. A cast to text would cut the blanks that pad a char(n).
func written(column string) string { return "format('%s', q." + quote(column) + ")" }

// jsonString is a text as a JSON string, as encoding/json writes it.
func jsonString(text string) string {
	json := "to_json(" + text + ")::text"
	for _, r := range []struct{ char, escape string }{
		{"'&'", "u0026"}, {"'<'", "u003c"}, {"'>'", "u003e"}, {"chr(8232)", "u2028"}, {"chr(8233)", "u2029"}} {
		json = "replace(" + json + ", " + r.char + ", E'\\\\" + r.escape + "')"
	}
	return json
}

// pick is the statement that runs the query and makes key and payload of its rows.
func (x *selecting) pick(types map[string]uint32) (sql string, args []any, err error) {
	arg := func(v string) string {
		args = append(args, v)
		return fmt.Sprintf("$%d::text", len(args))
	}
	spaces := arg(ledger.Spaces)
	switch oid, ok := types[x.Key]; {
	case !ok:
		return "", nil, &ledger.QueryError{Message: fmt.Sprintf("has no column %q", x.Key)}
	case !plain(oid) || oid == pgtype.BoolOID:
		return "", nil, errors.ErrUnsupported
	}
	var parts, rules []string
	for _, f := range x.Ordered() {
		if f.Value != nil {
			parts = append(parts, arg(f.JSON()))
			continue
		}
		oid, ok := types[f.Column]
		if !ok || !plain(oid) {
			return "", nil, errors.ErrUnsupported
		}
		value := written(f.Column)
		if f.Trim {
			value = "btrim(" + value + ", " + spaces + ")"
		}
		if f.Required {
			rules = append(rules, "WHEN q."+quote(f.Column)+" IS NULL THEN "+arg(f.Null()))
		}
		if f.MaxChars > 0 {
			rules = append(rules, fmt.Sprintf("WHEN char_length(%s) > %d THEN %s", value, f.MaxChars, arg(f.Long())))
		}
		switch {
		case oid == pgtype.BoolOID && !f.Text:
			value = "CASE WHEN q." + quote(f.Column) + " THEN 'true' ELSE 'false' END"
		case oid == pgtype.BoolOID:
			value = "CASE WHEN q." + quote(f.Column) + " THEN '\"true\"' ELSE '\"false\"' END"
		case f.Text:
			value = jsonString(value)
		case oid == pgtype.Int2OID || oid == pgtype.Int4OID || oid == pgtype.Int8OID:
		case oid == pgtype.NumericOID: // NaN and Infinity are no numbers in JSON
			value = "CASE WHEN " + value + " ~ '[NI]' THEN " + jsonString(value) + " ELSE " + value + " END"
		default:
			value = jsonString(value)
		}
		parts = append(parts, "CASE WHEN q."+quote(f.Column)+" IS NOT NULL THEN "+arg(f.JSON())+" || "+value+" END")
	}
	payload, bad := "NULL", "NULL"
	if len(rules) > 0 {
		bad = "CASE " + strings.Join(rules, " ") + " END"
	}
	if len(parts) > 0 {
		payload = "nullif('{' || concat_ws(',', " + strings.Join(parts, ", ") + ") || '}', '{}')"
	}
	return "INSERT INTO pg_temp.ledger_picked SELECT row_number() OVER (), CASE WHEN q." + quote(x.Key) + " IS NOT NULL THEN btrim(" + written(x.Key) + ", " + spaces + ") END, " + bad + ", " +
		payload + " FROM (\n" + x.Query + "\n) q", args, nil
}

// plain says whether Go and Postgres write values of a type alike.
func plain(oid uint32) bool {
	switch oid {
	case pgtype.Float4OID, pgtype.Float8OID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.ByteaOID:
		return false
	}
	return true
}

// makesItem is the condition that a picked row makes an item.
var makesItem = fmt.Sprintf(`(p.key <> '' AND octet_length(p.key) <= %d AND coalesce(octet_length(p.payload), 0) <= %d AND p.bad IS NULL)`, ledger.MaxKey, ledger.MaxPayload)

// count counts the rows and names the bad ones.
func (x *selecting) count() error {
	err := x.query(`SELECT count(*), count(*) FILTER (WHERE `+makesItem+` IS NOT TRUE) FROM pg_temp.ledger_picked p`, nil,
		func(scan scanner) error { return scan(&x.out.Rows, &x.out.BadRows) })
	if err != nil || x.out.BadRows == 0 {
		return err
	}
	return x.query(`SELECT p.o, p.key IS NULL, coalesce(octet_length(p.key), 0), coalesce(octet_length(p.payload), 0), coalesce(p.bad, '') FROM pg_temp.ledger_picked p
 WHERE `+makesItem+` IS NOT TRUE ORDER BY p.o LIMIT $1`, []any{ledger.MaxBadRows}, func(scan scanner) error {
		var row int64
		var null bool
		var key, payload int
		var broken string
		err := scan(&row, &null, &key, &payload, &broken)
		bad := ledger.NewBadRow(row, null, key, payload)
		if broken != "" && key > 0 && key <= ledger.MaxKey {
			bad.Reason = broken
		}
		x.out.Bad = append(x.out.Bad, bad)
		return err
	})
}

const (
	// newOfPicked are the picked rows of which the key is not known, the first of each, those with
	// {{SAMPLE}} only.
	newOfPicked = `WITH f AS (SELECT DISTINCT ON (p.key) p.key, p.payload FROM pg_temp.ledger_picked p WHERE {{ITEM}} ORDER BY p.key, p.o),
n AS (SELECT * FROM f WHERE NOT EXISTS (SELECT FROM {{S}}.ledger_items i WHERE i.kind = $1 AND i.scope = $2 AND i.key = f.key){{SAMPLE}}),
i AS (INSERT INTO {{S}}.ledger_items (kind, scope, key, slot, payload, source, created_at)
 SELECT $1, $2, n.key, ((get_byte(h, 0) << 8 | get_byte(h, 1)) & 1023)::smallint, convert_to(n.payload, 'UTF8'), nullif($3, ''), coalesce($4::timestamptz, now())
 FROM n CROSS JOIN LATERAL (SELECT sha256(convert_to(n.key, 'UTF8')) AS h) x ORDER BY n.key
 ON CONFLICT (kind, scope, key) DO NOTHING RETURNING id, slot),
b AS (INSERT INTO {{S}}.ledger_backlog (item_id, kind, slot, state, priority, due_at)
 SELECT id, $1, slot, $5::smallint, $6::smallint, coalesce($7::timestamptz, $4::timestamptz, now()) FROM i)
SELECT count(*) FROM i`

	// One statement counts what is there of the sample and looks for what is not known, at one moment:
	// of several that draw it at once each chooses the same, or what is left of it.
	bySample = ` ORDER BY sha256(convert_to($8::text || ':' || f.key, 'UTF8'))
 LIMIT greatest(0, $9::bigint - (SELECT count(*) FROM {{S}}.ledger_items o WHERE o.kind = $1 AND o.scope = $2 AND o.source = $3))`

	// knownOfPicked counts the picked rows that are known, and those that differ; see ledger.Add.
	knownOfPicked = `SELECT count(*), count(*) FILTER (WHERE p.payload IS NOT NULL AND convert_to(p.payload, 'UTF8') IS DISTINCT FROM i.payload
 AND (octet_length(i.payload) > 0 OR b.item_id IS NOT NULL) AND b.state IS DISTINCT FROM 4)
 FROM pg_temp.ledger_picked p JOIN {{S}}.ledger_items i ON i.kind = $1 AND i.scope = $2 AND i.key = p.key LEFT JOIN {{S}}.ledger_backlog b ON b.item_id = i.id
 WHERE {{ITEM}}`
)

// insert adds what is new. Keys are inserted in their order, as everybody does: two that add the
// same ones wait for each other in one direction.
func (x *selecting) insert(t *tx) error {
	w := ledger.Work{State: ledger.StateReady, Priority: x.Priority, Due: x.Due}
	if x.Due.After(t.Now()) {
		w.State = ledger.StateWaiting
	}
	args := []any{x.Kind, x.Scope, x.Source, t.stamp(), stateCode(w.State), w.Priority, timeOrNull(w.Due)}
	fill := strings.NewReplacer("{{ITEM}}", makesItem, "{{SAMPLE}}", "")
	known := func() (n, differs int64, err error) {
		err = x.query(fill.Replace(knownOfPicked), []any{x.Kind, x.Scope}, func(scan scanner) error { return scan(&n, &differs) })
		return n, differs, err
	}
	var err error
	if x.Sample > 0 {
		if x.out.Known, _, err = known(); err != nil {
			return err
		}
		fill = strings.NewReplacer("{{ITEM}}", makesItem, "{{SAMPLE}}", bySample)
		args = append(args, x.Seed, x.Sample)
	}
	if err := x.query(fill.Replace(newOfPicked), args, func(scan scanner) error { return scan(&x.out.Added) }); err != nil {
		return err
	}
	if x.out.Added > 0 {
		t.queued(x.Kind, &w)
	}
	if x.Sample > 0 {
		return t.told(nil)
	}
	n, differs, err := known()
	x.out.Known, x.out.Differs = n-x.out.Added-differs, differs
	return t.told(err)
}
