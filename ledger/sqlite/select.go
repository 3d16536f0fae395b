package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
)

// selecting is the driver of connections that add by a query: they have functions for what SQLite
// cannot say in SQL. It is not registered, so nobody else's connections have them.
var selecting = sync.OnceValue(func() *sqlite.Driver {
	d := &sqlite.Driver{}
	d.MustRegisterDeterministicScalarFunction("ledger_slot", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		key, err := ledger.CellText(args[0])
		return int64(ledger.Slot(key)), err
	})
	d.MustRegisterDeterministicScalarFunction("ledger_rank", 2, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		seed, _ := args[0].(string)
		key, _ := args[1].(string)
		rank := ledger.Rank(seed, key)
		return rank[:], nil
	})
	d.MustRegisterDeterministicScalarFunction("ledger_key", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		key, err := ledger.CellText(args[0])
		if args[0] == nil || err != nil { // ledger_payload says so
			return nil, nil
		}
		return strings.TrimSpace(key), nil
	})
	d.MustRegisterDeterministicScalarFunction("ledger_payload", -1, (&payloads{}).of)
	return d
})

// payloads makes payloads in SQL: ledger_payload(fields, key, cell …). It gives bytes, or NULL for
// none, or the text of what is wrong with the row.
type payloads struct {
	mu     sync.Mutex
	text   string
	fields []ledger.Field
}

func (p *payloads) of(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	fields, err := p.parse(args[0])
	if err != nil {
		return nil, err
	}
	cells := args[2:]
	sel := ledger.Selection{Fields: fields}
	key, err := ledger.CellText(args[1])
	if err != nil {
		return "the key " + err.Error(), nil
	}
	if key = strings.TrimSpace(key); key == "" || len(key) > ledger.MaxKey {
		return ledger.NewBadRow(0, args[1] == nil, len(key), 0).Reason, nil
	}
	i := -1
	payload, err := sel.Payload(func(string) any { i++; return cells[i] })
	if err != nil {
		return err.Error(), nil
	}
	if len(payload) > ledger.MaxPayload {
		return ledger.NewBadRow(0, false, len(key), len(payload)).Reason, nil
	}
	if payload == nil {
		return nil, nil
	}
	return payload, nil
}

// parse reads the fields, which are the same for all rows of a statement.
func (p *payloads) parse(arg driver.Value) ([]ledger.Field, error) {
	text, _ := arg.(string)
	p.mu.Lock()
	defer p.mu.Unlock()
	if text != p.text {
		p.text, p.fields = "", nil
		if err := json.Unmarshal([]byte(text), &p.fields); err != nil {
			return nil, err
		}
		p.text = text
	}
	return p.fields, nil
}

// notCode is what a semicolon may stand in: a string, a quoted name, a comment.
var notCode = regexp.MustCompile("'[^']*'|\"[^\"]*\"|`[^`]*`|\\[[^\\]]*\\]|--[^\n]*|/\\*(?s:.*?)(?:\\*/|$)")

// OneStatement says whether SQL is one statement, without a semicolon. The driver runs all that are in
// a text, so one that is put between parentheses could close them and go on with another.
func OneStatement(sql string) bool {
	return !strings.ContainsAny(notCode.ReplaceAllString(sql, " "), ";\x00")
}

// Select implements ledger.Selecter. A connection of its own runs the query, which holds up
// nobody, into a temporary table, and adds from there in steps that are as short as those of the
// connection that writes: others take turns in between.
func (s *Store) Select(ctx context.Context, sel ledger.Selection) (out ledger.Selected, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return out, errClosed
	}
	x := &selection{Selection: sel, s: s, ctx: ctx, out: &out}
	if !OneStatement(sel.Query) {
		return out, &ledger.QueryError{Message: "must be one SELECT, and has a semicolon"}
	}
	if err = x.open(); err == nil {
		err = errors.Join(x.run(), x.h.close())
	}
	return out, explain(s.file.name, err)
}

type selection struct {
	ledger.Selection
	s   *Store
	ctx context.Context
	h   *handle
	out *ledger.Selected
}

func (x *selection) open() error {
	if err := x.s.file.check(); err != nil {
		return err
	}
	conn, err := selecting().Open(x.s.file.uri("busy_timeout(0)", "synchronous(FULL)", "fullfsync(1)", "foreign_keys(1)",
		"cache_size(-16384)", "temp_store(FILE)", "wal_autocheckpoint(4000)"))
	if err == nil {
		x.h = &handle{conn: conn, stmts: map[string]driver.Stmt{}}
	}
	return err
}

func (x *selection) exec(query string, args ...any) (result, error) {
	return x.h.exec(x.ctx, query, args)
}

func (x *selection) number(query string, args ...any) (n int64, err error) {
	err = x.h.query(x.ctx, query, func(r row) error { n = r.int(0); return nil }, args)
	return n, err
}

func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// maxCells bounds the columns that a function of SQLite takes.
const maxCells = 100

// good is the condition that a picked row makes an item.
const good = `typeof(p.payload) <> 'text'`

func (x *selection) run() error {
	if err := x.pick(); err != nil {
		return err
	}
	from := "picked"
	if x.Sample > 0 {
		from = "chosen"
		if err := x.choose(); err != nil {
			return err
		}
	}
	if x.Try {
		return x.try(from)
	}
	var differs, known int64
	last, err := x.number(`SELECT coalesce(max(o), 0) FROM temp.` + from)
	for at, size := int64(0), int64(256); err == nil && at < last; {
		var took time.Duration
		took, err = x.step(from, at, at+size, &known, &differs)
		at += size
		size = max(64, min(int64(float64(size)*min(2, float64(slice)/float64(took+1))), 8192))
	}
	if x.Sample == 0 {
		x.out.Known, x.out.Differs = known, differs
	}
	return err
}

// pick runs the query.
func (x *selection) pick() error {
	fields := x.Ordered()
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	cells := ""
	n := 0
	for _, f := range fields {
		if f.Value == nil {
			cells += ", q." + identifier(f.Column)
			n++
		}
	}
	if n > maxCells {
		return errors.ErrUnsupported
	}
	if _, err := x.exec(`CREATE TEMP TABLE picked (o INTEGER PRIMARY KEY, key TEXT, payload)`); err != nil {
		return err
	}
	key := "q." + identifier(x.Key)
	_, err = x.exec("INSERT INTO temp.picked (key, payload) SELECT ledger_key("+key+"), ledger_payload(?1, "+key+cells+") FROM (\n"+x.Query+"\n) q", string(text))
	switch {
	case err != nil && x.ctx.Err() != nil:
		return x.ctx.Err()
	case err != nil && code(err)&0xff == 1: // SQLITE_ERROR
		return &ledger.QueryError{Message: err.Error(), Err: err}
	case err != nil:
		return err
	}
	err = x.h.query(x.ctx, `SELECT count(*), count(iif(`+good+`, NULL, 1)) FROM temp.picked p`, func(r row) error {
		x.out.Rows, x.out.BadRows = r.int(0), r.int(1)
		return nil
	}, nil)
	if err != nil || x.out.BadRows == 0 {
		return err
	}
	return x.h.query(x.ctx, `SELECT p.o, p.payload FROM temp.picked p WHERE NOT `+good+` ORDER BY p.o LIMIT ?1`, func(r row) error {
		x.out.Bad = append(x.out.Bad, ledger.BadRow{Row: r.int(0), Reason: r.text(1)})
		return nil
	}, []any{ledger.MaxBadRows})
}

const isKnown = `EXISTS (SELECT 1 FROM ledger_items i WHERE i.kind = ?1 AND i.scope = ?2 AND i.key = p.key)`

// choose takes the sample. One statement counts what is there of it and looks for what is not known: of
// several that draw it at once each chooses the same, or what is left of it.
func (x *selection) choose() (err error) {
	if x.out.Known, err = x.number(`SELECT count(*) FROM temp.picked p WHERE `+good+` AND `+isKnown, x.Kind, x.Scope); err != nil {
		return err
	}
	if _, err = x.exec(`CREATE TEMP TABLE chosen (o INTEGER PRIMARY KEY, key TEXT, payload)`); err != nil {
		return err
	}
	_, err = x.exec(`INSERT INTO temp.chosen (key, payload) SELECT p.key, p.payload FROM (SELECT min(o), key, payload FROM temp.picked p WHERE `+good+` GROUP BY key) p
 WHERE NOT `+isKnown+` ORDER BY ledger_rank(?3, p.key)
 LIMIT max(0, ?4 - (SELECT count(*) FROM ledger_items o WHERE o.kind = ?1 AND o.scope = ?2 AND o.source = ?5))`, x.Kind, x.Scope, x.Seed, x.Sample, x.Source)
	return err
}

// differing is the condition that a picked row p is known as i with another payload; see ledger.Add.
const differing = `p.payload IS NOT NULL AND p.payload IS NOT i.payload AND (coalesce(octet_length(i.payload), 0) > 0 OR b.item_id IS NOT NULL) AND b.state IS NOT 4`

// try counts what would be done. Of rows with the same new key the first would be added.
func (x *selection) try(from string) error {
	return x.h.query(x.ctx, `WITH f AS MATERIALIZED (SELECT min(o) AS o, key, payload FROM temp.`+from+` p WHERE `+good+` GROUP BY key),
 r AS (SELECT p.o = f.o AND i.id IS NULL AS added, CASE WHEN i.id IS NULL THEN p.payload IS NOT NULL AND p.payload IS NOT f.payload ELSE `+differing+` END AS differs
  FROM temp.`+from+` p CROSS JOIN f ON f.key = p.key LEFT JOIN ledger_items i ON i.kind = ?1 AND i.scope = ?2 AND i.key = p.key LEFT JOIN ledger_backlog b ON b.item_id = i.id WHERE `+good+`)
 SELECT coalesce(sum(added), 0), coalesce(sum(differs), 0), count(*) FROM r`, func(r row) error {
		x.out.Added = r.int(0)
		if x.Sample == 0 {
			x.out.Differs = r.int(1)
			x.out.Known = r.int(2) - x.out.Added - x.out.Differs
		}
		return nil
	}, []any{x.Kind, x.Scope})
}

// step adds the picked rows after one place up to another, in one transaction, and says how long
// it held the write lock.
func (x *selection) step(from string, after, to int64, known, differs *int64) (took time.Duration, err error) {
	if err := x.begin(); err != nil {
		return 0, err
	}
	start := time.Now()
	added, changed, n, err := x.add(from, after, to)
	if err == nil {
		failpoint.Here("sqlite.commit")
		if _, err = x.h.exec(context.WithoutCancel(x.ctx), "COMMIT", nil); err != nil {
			err = uncommitted(x.s.file.name, err)
		}
		failpoint.Here("sqlite.committed")
	}
	if err != nil {
		return 0, err // closing the connection undoes it
	}
	x.out.Added += added
	*differs += changed
	*known += n - added - changed
	took = time.Since(start)
	pause(gap)
	return took, nil
}

func (x *selection) add(from string, after, to int64) (added, differ, rows int64, err error) {
	now := x.s.clock()
	due, state := x.Due, stateCode(ledger.StateReady)
	if due.After(now) {
		state = stateCode(ledger.StateWaiting)
	} else if due.IsZero() {
		due = now
	}
	top, err := x.number(`SELECT coalesce(max(id), 0) FROM ledger_items`)
	if err != nil {
		return 0, 0, 0, err
	}
	r, err := x.exec(`INSERT INTO ledger_items (kind, scope, key, slot, payload, source, epoch, created_at)
 SELECT ?1, ?2, p.key, ledger_slot(p.key), p.payload, ?3, 1, ?4 FROM temp.`+from+` p WHERE p.o > ?5 AND p.o <= ?6 AND `+good+` ORDER BY p.key, p.o
 ON CONFLICT (kind, scope, key) DO NOTHING`, x.Kind, x.Scope, null(x.Source), now, after, to)
	if err == nil && r.changes > 0 {
		_, err = x.exec(`INSERT INTO ledger_backlog (item_id, kind, slot, state, priority, due_at, epoch)
 SELECT id, kind, slot, ?2, ?3, ?4, 1 FROM ledger_items WHERE id > ?1`, top, state, x.Priority, due)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	err = x.h.query(x.ctx, `SELECT count(*), count(iif(`+differing+`, 1, NULL)) FROM temp.`+from+` p
 CROSS JOIN ledger_items i ON i.kind = ?1 AND i.scope = ?2 AND i.key = p.key LEFT JOIN ledger_backlog b ON b.item_id = i.id
 WHERE p.o > ?3 AND p.o <= ?4 AND `+good, func(r row) error {
		rows, differ = r.int(0), r.int(1)
		return nil
	}, []any{x.Kind, x.Scope, after, to})
	return r.changes, differ, rows, err
}

// begin takes the write lock as the connection that writes does, as one of those who take turns.
func (x *selection) begin() error {
	for start := time.Now(); ; {
		_, err := x.exec("BEGIN IMMEDIATE")
		if err == nil {
			return x.s.file.check()
		}
		switch waited := time.Since(start); {
		case x.ctx.Err() != nil:
			return x.ctx.Err()
		case !busy(err):
			return err
		case waited > x.s.w.wait:
			return locked(x.s.file.name, fmt.Errorf("waited %v", waited))
		default:
			pause(min(eagerMin+waited/100, patient))
		}
	}
}
