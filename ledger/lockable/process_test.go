//go:build unix

package lockable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/lockable"
)

// The agents of these tests are processes of their own. Each claims, and writes what it was given into a
// table, one row per piece of work.
const sharedTables = `CREATE TABLE piece (a int NOT NULL, b text NOT NULL, done int NOT NULL DEFAULT 0, locked_by text, expires_at timestamptz, lock_id text, PRIMARY KEY (a, b));
CREATE INDEX piece_expires ON piece (expires_at);
CREATE TABLE given (agent text NOT NULL, a int NOT NULL, b text NOT NULL, how text NOT NULL)`

const pieceCount = 400

type piece struct {
	A int    `db:"a,key"`
	B string `db:"b,key"`
}

var pieces = lockable.Table{Name: "piece", LockID: "lock_id", Where: "done = 0", TTL: time.Second, Logger: silent}

// fillPieces makes n pieces, of which many have equal columns.
func fillPieces(p *place, n int) {
	p.Helper()
	for statement := range strings.SplitSeq(sharedTables, ";") {
		p.do(statement)
	}
	series := `generate_series(0, $1::int - 1) AS s (i)`
	if p.sqlite() {
		series = `(WITH RECURSIVE c (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < ?1 - 1) SELECT i FROM c)`
	}
	p.do(`INSERT INTO piece (a, b) SELECT i % 20, 'k' || (i / 20) FROM `+series, n)
}

func init() { childtest.Runs["agent"] = agent }

// agent claims and finishes pieces until none is left. args: the URL of the database, the name of the agent.
func agent(ctx context.Context, args []string) error {
	t := &outside{ctx: ctx}
	defer t.close()
	p := open(t, args[0])
	if err := t.err; err != nil {
		return err
	}
	childtest.Ask("ready")
	c, err := lockable.New[piece](ctx, p, pieces)
	if err != nil {
		return err
	}
	for {
		got, err := c.Claim(ctx, args[1], 1+rand.IntN(10))
		if err != nil {
			return err
		}
		left, err := left(ctx, p)
		if err != nil || left == 0 {
			return err
		}
		for _, g := range got {
			if err := note(ctx, p, args[1], g.Row, "given"); err != nil {
				return err
			}
			err := c.Finish(ctx, args[1], g, map[string]any{"done": 1})
			if errors.Is(err, ledger.ErrLeaseLost) {
				continue
			}
			if err == nil {
				err = note(ctx, p, args[1], g.Row, "finished")
			}
			if err != nil {
				return err
			}
		}
	}
}

func left(ctx context.Context, p *place) (n int, err error) {
	rows, err := p.Query(ctx, `SELECT count(*) FROM piece WHERE done = 0`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	rows.Next()
	err = rows.Scan(&n)
	return n, err
}

func note(ctx context.Context, p *place, name string, g piece, how string) error {
	return p.write(ctx, `INSERT INTO given (agent, a, b, how) VALUES ($1, $2, $3, $4)`, name, g.A, g.B, how)
}

// write repeats a statement while another process has the SQLite file.
func (p *place) write(ctx context.Context, statement string, args ...any) error {
	if p.sqlite() {
		statement = strings.ReplaceAll(statement, "$", "?")
	}
	for {
		_, err := p.Exec(ctx, statement, args...)
		if err == nil || !strings.Contains(err.Error(), "SQLITE_BUSY") {
			return err
		}
		<-time.After(time.Millisecond)
	}
}

// outside is a testing.TB for a process that is no test.
type outside struct {
	testing.TB
	ctx  context.Context
	err  error
	undo []func()
}

func (o *outside) Helper()                  {}
func (o *outside) Context() context.Context { return o.ctx }
func (o *outside) Fatal(args ...any)        { o.err = errors.New(fmt.Sprint(args...)) }
func (o *outside) Cleanup(f func())         { o.undo = append(o.undo, f) }
func (o *outside) close() {
	for _, f := range o.undo {
		f()
	}
}

// freeze stops a process, and returns when it stands still.
func freeze(t *testing.T, w *childtest.Child) {
	t.Helper()
	must.OK(t, w.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(w.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v %v", status, err)
	}
}

// alone calls fn while no other process writes to an SQLite file: a process that is stopped in the midst of
// a write would hold up all others for as long.
func (p *place) alone(fn func()) {
	p.Helper()
	if !p.sqlite() {
		fn()
		return
	}
	for {
		tx, _, rollback := p.begin()
		_, err := tx.Exec(p.Context(), `UPDATE piece SET done = 0 WHERE 0`)
		if err == nil {
			fn()
		}
		_ = rollback() // it has written nothing
		switch {
		case err == nil:
			return
		case !strings.Contains(err.Error(), "SQLITE_BUSY"):
			p.Fatal(err)
		}
		<-time.After(time.Millisecond)
	}
}

// doubles counts pieces that were given to an agent after another had been given them.
func doubles(p *place, how string) int64 {
	return one[int64](p, `SELECT count(*) FROM (SELECT a, b FROM given WHERE how = '`+how+
		`' GROUP BY a, b HAVING count(*) > 1) AS d`)
}

// TestAgents: four processes claim, one of them is killed, another is stopped beyond its lease. The
// database itself watches: a trigger refuses to give a row that another agent holds.
func TestAgents(t *testing.T) {
	for _, scheme := range []string{"sqlite", "postgres"} {
		t.Run(scheme, func(t *testing.T) {
			p := open(t, empty(t, scheme))
			fillPieces(p, pieceCount)
			guard(p)
			var all []*childtest.Child
			for i := range 4 {
				c := childtest.Start(t, "agent", p.url, fmt.Sprint("agent-", i))
				c.Expect(t, "ready")
				all = append(all, c)
			}
			for _, c := range all {
				c.Tell(t, "go")
			}
			must.Eventually(t, "work is under way", func() bool {
				return one[int64](p, `SELECT count(*) FROM piece WHERE done = 1`) > 100
			})
			must.OK(t, all[0].Process.Kill())
			p.alone(func() { freeze(t, all[1]) })
			_ = all[0].Wait()
			for _, c := range all[2:] {
				c.Done(t)
			}
			must.OK(t, all[1].Process.Signal(syscall.SIGCONT))
			all[1].Done(t)
			if n := one[int64](p, `SELECT count(*) FROM piece WHERE done = 0`); n != 0 {
				t.Errorf("%d pieces were lost", n)
			}
			if n := doubles(p, "finished"); n != 0 {
				t.Errorf("%d pieces were finished twice", n)
			}
			t.Logf("%d of %d pieces were given twice, after their agent was killed or stopped", doubles(p, "given"), pieceCount)
		})
	}
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
