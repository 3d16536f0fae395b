package lockable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/lockable"
)

const (
	pieceTable = `CREATE TABLE piece (a int NOT NULL, b text NOT NULL, done int NOT NULL DEFAULT 0, locked_by text, expires_at timestamptz, lock_id text, PRIMARY KEY (a, b));
CREATE INDEX piece_expires ON piece (expires_at)`
	pieceCount = 400
)

type piece struct {
	A int    `db:"a,key"`
	B string `db:"b,key"`
}

var pieces = lockable.Table{Name: "piece", LockID: "lock_id", Where: "done = 0", TTL: time.Hour}

// fillPieces makes the pieces, of which many have equal columns.
func fillPieces(p *place) {
	p.Helper()
	for statement := range strings.SplitSeq(pieceTable, ";") {
		p.do(statement)
	}
	series := `generate_series(0, $1::int - 1) AS s (i)`
	if p.sqlite() {
		series = `(WITH RECURSIVE c (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < ?1 - 1) SELECT i FROM c)`
	}
	p.do(`INSERT INTO piece (a, b) SELECT i % 20, 'k' || (i / 20) FROM `+series, pieceCount)
}

// guard makes the database refuse to hand on a row whose claim has not expired by its clock.
func guard(p *place) {
	p.Helper()
	if p.sqlite() {
		p.do(`CREATE TRIGGER guard BEFORE UPDATE ON piece WHEN old.locked_by IS NOT NULL AND new.locked_by <> old.locked_by
 AND old.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') BEGIN SELECT RAISE(ABORT, 'held by two agents'); END`)
		return
	}
	p.do(`CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
 IF old.locked_by IS NOT NULL AND new.locked_by <> old.locked_by AND old.expires_at > clock_timestamp() THEN RAISE 'held by two agents'; END IF;
 RETURN new; END $$`)
	p.do(`CREATE TRIGGER guard BEFORE UPDATE ON piece FOR EACH ROW EXECUTE FUNCTION guard()`)
}

// yielding lets the other agents go on before each statement, also on one processor.
type yielding struct{ ledger.Conn }

func (y yielding) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	runtime.Gosched()
	return y.Conn.Query(ctx, query, args...)
}

func (y yielding) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	runtime.Gosched()
	return y.Conn.Exec(ctx, query, args...)
}

// TestAgents: four agents claim at once, each with a pool of its own. Half of the pieces are left by agents that were
// killed or frozen until their claims had expired. Each piece is finished once, and never by an agent that has lost it.
func TestAgents(t *testing.T) {
	for _, scheme := range []string{"sqlite", "postgres"} {
		t.Run(scheme, func(t *testing.T) {
			p := open(t, empty(t, scheme))
			fillPieces(p)
			guard(p)
			gone := claimer[piece](t, p, pieces)
			must.Do(t)(gone.Claim(t.Context(), "killed", pieceCount/4))
			lost, err := gone.Claim(t.Context(), "frozen", pieceCount/4)
			if err != nil || len(lost) != pieceCount/4 {
				t.Fatalf("%d pieces, %v", len(lost), err)
			}
			p.expire("piece", "expires_at", "locked_by IS NOT NULL")
			var all sync.WaitGroup
			var finished sync.Map
			for i := range 4 {
				c, name := claimer[piece](t, yielding{open(t, p.url)}, pieces), fmt.Sprint("agent-", i)
				all.Go(func() {
					for {
						got, err := c.Claim(t.Context(), name, 1+rand.IntN(10))
						if err != nil {
							t.Error(err)
						}
						if len(got) == 0 {
							return
						}
						for _, g := range got {
							if err := c.Finish(t.Context(), name, g, map[string]any{"done": 1}); err != nil {
								t.Errorf("%s finishes %+v: %v", name, g.Row, err)
							} else if other, twice := finished.LoadOrStore(g.Row, name); twice {
								t.Errorf("%+v was finished by %s and %s", g.Row, other, name)
							}
						}
					}
				})
			}
			all.Wait()
			if n := one[int64](p, `SELECT count(*) FROM piece WHERE done = 0`); n != 0 {
				t.Errorf("%d pieces were lost", n)
			}
			for _, g := range lost {
				if err := gone.Finish(t.Context(), "frozen", g, nil); !errors.Is(err, ledger.ErrLeaseLost) {
					t.Errorf("%+v, finished after its claim had expired: %v", g.Row, err)
				}
			}
		})
	}
}
