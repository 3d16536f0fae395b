package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
)

// many is a number of items that are copied if they are expected to be new.
const many = 600

// copies counts the tables into which the ledger copies.
type copies struct{ atomic.Int64 }

// copying is a connection to the server.
type copying struct {
	net.Conn
	of *copies
}

func (c copying) Write(message []byte) (int, error) {
	if bytes.Contains(message, []byte("COPY ")) && bytes.Contains(message, []byte("STDIN")) {
		c.of.Add(1)
	}
	return c.Conn.Write(message)
}

// open opens a ledger at a URL with a pool of its own.
func (c *copies) open(t *testing.T, url string, o postgres.Options) *ledger.Ledger {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	must.OK(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return copying{conn, c}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must.OK(t, err)
	t.Cleanup(pool.Close)
	s, err := postgres.Open(t.Context(), pool, o)
	must.OK(t, err)
	t.Cleanup(func() { s.Close() })
	return ledger.New(s, ledger.Options{})
}

// addAll adds items, and returns how many were new and their ids by key.
func addAll(t *testing.T, l *ledger.Ledger, items []ledger.NewItem) (added int, ids map[string]int64) {
	t.Helper()
	answers, err := l.Add(t.Context(), items...)
	must.OK(t, err)
	ids = map[string]int64{}
	for i, a := range answers {
		if a.Verdict == ledger.VerdictAdded {
			added++
		}
		ids[items[i].Scope+"/"+items[i].Key] = a.ID
	}
	return added, ids
}

// allSorts are items of which some fill and some leave empty each column that Add writes.
func allSorts(at time.Time) []ledger.NewItem {
	items := files(0, many)
	for i := range items {
		n := &items[i]
		n.Kind = []string{"plain", "mixed", "other"}[i%3]
		n.Priority = int16(i%5 - 2)
		switch i % 7 {
		case 1:
			n.Scope, n.Fingerprint, n.ShardKey, n.Source = "ünï", "v1\x01", "shard", "a\nb\t\\N"
		case 2:
			n.Payload = bytes.Repeat([]byte{0, 255, '\\', '\n'}, bounds.MaxPayload/4)
		case 3:
			n.Payload, n.Due = nil, at.Add(time.Hour+time.Nanosecond)
		case 4:
			n.Payload, n.Due = []byte{}, at.Add(-time.Hour)
		case 5:
			n.Every, n.Zone = "day", "Europe/Berlin"
		}
		if i%7 == 2 && i > 20 {
			n.Payload = n.Payload[:100]
		}
	}
	return items
}

// Copied items lie in the tables as if they had been inserted, and have the ids that were answered.
func TestCopiedLikeInserted(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Microsecond)
	pool := pgtest.Pool(t)
	var rows [2][]map[string]any
	for i := range rows { // the second ledger has learnt from an add that what comes is new
		var c copies
		schema := pgtest.Schema(t)
		l := c.open(t, pgtest.URL(t), postgres.Options{Schema: schema, Now: func() time.Time { return at }})
		if i == 1 {
			addAll(t, l, files(0, many))
		}
		added, ids := addAll(t, l, allSorts(at))
		if copied := c.Load(); added != many || copied != int64(2*i) {
			t.Errorf("%d were added, %d tables copied, want %d", added, copied, 2*i)
		}
		found, err := pool.Query(t.Context(), `SELECT i.scope || '/' || i.key AS of, i.id, to_jsonb(i) - 'id' AS item, to_jsonb(b) - 'item_id' AS work FROM `+
			schema+`.ledger_items i JOIN `+schema+`.ledger_backlog b ON b.item_id = i.id WHERE i.kind <> 'noop' ORDER BY i.kind, i.scope, i.key`)
		must.OK(t, err)
		if rows[i], err = pgx.CollectRows(found, pgx.RowToMap); err != nil || len(rows[i]) != many {
			t.Fatalf("%d rows, %v", len(rows[i]), err)
		}
		for _, row := range rows[i] {
			if id := row["id"].(int64); ids[row["of"].(string)] != id {
				t.Errorf("%s is item %d, the answer was %d", row["of"], id, ids[row["of"].(string)])
			}
			delete(row, "id")
		}
	}
	for k := range rows[0] {
		if !reflect.DeepEqual(rows[0][k], rows[1][k]) {
			t.Errorf("inserted %.300v\ncopied %.300v", rows[0][k], rows[1][k])
		}
	}
}

// An add of many is answered even if any of its round trips fails, and adds each of its items once.
func TestCopyBroken(t *testing.T) {
	b := newBreaker(t)
	s, err := postgres.Open(t.Context(), b.Pool, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	addAll(t, l, files(0, many))
	want := many
	for _, fault := range faults {
		for k := 1; k <= 5; k++ {
			items := files(want, many)
			mend := b.Break(fault, k)
			_, err := l.Add(t.Context(), items...)
			landed := mend()
			if uncertain := errors.Is(err, ledger.ErrUnavailable) && (fault == lostBefore || fault == lostAfter); err != nil &&
				!uncertain {
				t.Errorf("%s, struck at %d: %v", fault, k, err)
			}
			if err != nil {
				if added, _ := addAll(t, l, items); landed != (added == 0) || added != 0 && added != many {
					t.Errorf("%s, struck at %d: the second call added %d; the first one landed: %v", fault, k, added, landed)
				}
			}
			want += many
			addAll(t, l, files(want, many)) // the next ones are expected to be new
			want += many
		}
	}
	if n, err := l.Count(t.Context(), ledger.Filter{}); err != nil || n != int64(want) {
		t.Errorf("%d items, %v; %d were added", n, err, want)
	}
}

// A role that may not draw ids adds all the same, without COPY. A caller's transaction is not copied into. COPY works
// through a pooler.
func TestWhoCopies(t *testing.T) {
	role, super, as := newRole(t)
	o := postgres.Options{Schema: "work"}
	if _, _, err := postgres.Migrate(t.Context(), super, o); err != nil {
		t.Fatal(err)
	}
	execute(t, super, strings.Join(postgres.Grants("work", role, schema.Operator), "\n"))
	var c copies
	next := 0
	check := func(who string, l *ledger.Ledger, want int64) {
		t.Helper()
		addAll(t, l, files(next, many))
		had := c.Load()
		added, ids := addAll(t, l, files(next+many, many))
		if n := c.Load() - had; added != many || n != want {
			t.Errorf("%s: %d were added, %d tables copied, want %d", who, added, n, want)
		}
		if known, again := addAll(t, l, files(next+many, many)); known != 0 || !reflect.DeepEqual(ids, again) {
			t.Errorf("%s: %d were added once more, or have other ids", who, known)
		}
		next += 2 * many
	}
	l := c.open(t, as, o)
	check("with all grants", l, 2)
	check("through a pooler", c.open(t, pgtest.Bouncer(t, super), o), 2)
	revoke := "USAGE ON SEQUENCE work.ledger_items_id_seq"
	execute(t, super, "REVOKE "+revoke+" FROM "+role)
	check("without the right to draw ids", l, 0)
	execute(t, super, "GRANT "+revoke+" TO "+role)
	check("with the right again", l, 2)

	pool := pgtest.Pool(t)
	schema := pgtest.Schema(t)
	l = c.open(t, pgtest.URL(t), postgres.Options{Schema: schema})
	addAll(t, l, files(0, many))
	tx, err := pool.Begin(t.Context())
	must.OK(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	answers, err := l.AddTx(t.Context(), postgres.Wrap(tx), files(many/2, many)...)
	if err != nil || answers[0].Verdict != ledger.VerdictKnown || answers[many-1].Verdict != ledger.VerdictAdded {
		t.Errorf("in the caller's transaction: %v", err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the caller's transaction afterwards: %v", err)
	}
}
