//go:build unix

package locks_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// Four processes contend for a few locks. At random moments one of them is killed, or frozen for longer than its TTL.
// Two records of the run are checked:
//
//	- The database recorded each change of a lock as it was made. By its clock, no process may get a lock before the
//	  time of the previous holder is over, and fences must rise.
//	- Each holder recorded, as it began, the number of effects of earlier holders. No such effect may come later.

// noteChanges makes the database record the changes of locks, in their order.
var noteChanges = map[string][]string{
	"sqlite": {
		`CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, name TEXT, fence INTEGER, since INTEGER, expires INTEGER, at INTEGER)`,
		note("INSERT", "NEW"), note("UPDATE", "NEW"), note("DELETE", "OLD"),
	},
	"pgx": {
		`CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY, op text, name text, fence bigint, since bigint, expires bigint, at bigint)`,
		`CREATE FUNCTION micro(t timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$`,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE r record := coalesce(NEW, OLD); BEGIN
 INSERT INTO notes (op, name, fence, since, expires, at) VALUES (TG_OP, r.name, r.fence, micro(r.since), micro(r.expires_at), micro(clock_timestamp())); RETURN NULL; END $$`,
		`CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON ledger_locks FOR EACH ROW EXECUTE FUNCTION note()`,
	},
}

func note(op, row string) string {
	return fmt.Sprintf(
		`CREATE TRIGGER note_%[1]s AFTER %[1]s ON ledger_locks BEGIN INSERT INTO notes (op, name, fence, since, expires, at)
 VALUES ('%[1]s', %[2]s.name, %[2]s.fence, %[2]s.since, %[2]s.expires_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER)); END`, op, row)
}

const (
	contendedNames = 3
	contendFor     = 5 * time.Second
)

// contender acquires and releases locks until its stdin ends. It writes what it sees to a file at once.
func contender(ctx context.Context, p *place, args []string) error {
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	for ctx.Err() == nil {
		name := fmt.Sprint("l", rand.N(contendedNames))
		o := locks.Options{TTL: time.Second, Wait: rand.N(500 * time.Millisecond)}
		enter := func(c ledger.Conn, l *locks.Lock) error {
			n, err := number(ctx, c, fmt.Sprintf(`SELECT count(*) FROM effects WHERE name = '%s' AND fence < %d`, name, l.Fence))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(f, "%s %d %d\n", name, l.Fence, n)
			return err
		}
		work := func() { <-time.After(rand.N(100 * time.Millisecond)) }
		if rand.N(2) == 0 {
			err = p.locks.Do(ctx, name, o, func(_ context.Context, l *locks.Lock) error {
				work()
				return enter(p.conn, l)
			})
		} else {
			err = p.inTx(ctx, name, o, func(ctx context.Context, tx ledger.Conn, l *locks.Lock) error {
				if err := errors.Join(enter(tx, l), effect(ctx, tx, l)); err != nil {
					return err
				}
				work()
				return nil
			})
		}
		if err != nil && !errors.As(err, new(*locks.HeldError)) && !errors.Is(err, locks.ErrLost) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestContention runs the history and checks both records.
func TestContention(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		p.exec(t, makeEffects)
		p.exec(t, noteChanges[p.kind]...)
		file := filepath.Join(t.TempDir(), "seen")
		var procs [4]*childtest.Child
		for i := range procs {
			procs[i] = p.spawn(t, "contender", file)
		}
		killed, frozen := 0, 0
		enough := func() bool {
			grants, overdue, _ := judgeNotes(t, p)
			return grants >= 20 && overdue > 0 && p.number(t, effects) >= 5
		}
		for began := time.Now(); time.Since(began) < contendFor || !enough() && time.Since(began) < patience; {
			<-time.After(rand.N(400 * time.Millisecond))
			i := p.victim(t, procs[:])
			if rand.N(3) > 0 {
				killed++
				_ = procs[i].Process.Kill()
				_ = procs[i].Wait()
				procs[i] = p.spawn(t, "contender", file)
				continue
			}
			frozen++
			must.OK(t, procs[i].Process.Signal(syscall.SIGSTOP))
			<-time.After(time.Second + rand.N(700*time.Millisecond))
			must.OK(t, procs[i].Process.Signal(syscall.SIGCONT))
		}
		for _, c := range procs {
			c.Tell(t, "end")
		}
		for _, c := range procs {
			c.Done(t)
		}
		grants, overdue, wrong := judgeNotes(t, p)
		for _, w := range wrong {
			t.Error(w)
		}
		seen := judgeSeen(t, p, file)
		t.Logf(
			"%d killed, %d frozen; %d grants, %d of them after the time of a holder was over; %d effects, counted by %d holders", killed, frozen, grants, overdue, p.number(t, effects), seen)
		if !enough() {
			t.Error("too little has happened to judge")
		}
	})
}

// victim returns a process that holds a lock, if any does, since only holders can lose something.
func (p *place) victim(t *testing.T, procs []*childtest.Child) int {
	held, err := p.locks.Held(t.Context())
	must.OK(t, err)
	for _, h := range held {
		for i, c := range procs {
			if strings.HasSuffix(h.Holder, fmt.Sprint("/", c.Process.Pid)) {
				return i
			}
		}
	}
	return rand.N(len(procs))
}

// judgeNotes checks the changes that the database recorded, and returns the faults.
func judgeNotes(t *testing.T, p *place) (grants, overdue int, wrong []string) {
	t.Helper()
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	rows, err := p.conn.Query(t.Context(), `SELECT op, name, fence, since, expires, at FROM notes ORDER BY id`)
	must.OK(t, err)
	defer rows.Close()
	type record struct {
		fence, since, expires int64
		drawn                 bool // the fence is drawn, but no holder has it yet
	}
	now := map[string]record{} // by name; a lock that is free has none
	highest, given := map[string]int64{}, map[int64]string{}
	give := func(name string, fence int64) {
		if fence <= highest[name] {
			complain("%s: fence %d after %d", name, fence, highest[name])
		}
		if other, twice := given[fence]; twice {
			complain("fence %d was given to %s and %s", fence, other, name)
		}
		given[fence], highest[name] = name, fence
	}
	for rows.Next() {
		var op, name string
		var fence, since, expires, at int64
		must.OK(t, rows.Scan(&op, &name, &fence, &since, &expires, &at))
		before, there := now[name]
		switch {
		case op == "DELETE":
			// A release drops the record. On SQLite a new holder also drops an expired record first, so the next
			// change is compared with this one.
			if delete(now, name); p.kind == "sqlite" && before.expires <= at {
				now[name] = before
			}
		case before.drawn: // the insert before it, in the same transaction, drew a number
			give(name, fence)
			now[name] = record{fence, since, expires, false}
		case there && before.fence == fence: // renewed, or kept for AtLeast
			if since > before.expires || at-before.expires > time.Second.Microseconds() {
				complain("%s: fence %d came back to life", name, fence)
			}
			now[name] = record{fence, since, expires, false}
		default:
			if grants++; there {
				overdue++
			}
			if there && before.expires > since {
				complain("%s: fence %d from %d, when fence %d had it until %d", name, fence, since, before.fence,
					before.expires)
			}
			// On Postgres the number that an insert draws may be lower than a fence that another process got and
			// released meanwhile. So the holder draws another number after the insert, when no other process can
			// insert the record.
			drawn := op == "INSERT" && p.kind != "sqlite"
			if !drawn {
				give(name, fence)
			}
			now[name] = record{fence, since, expires, drawn}
		}
	}
	must.OK(t, rows.Err())
	return grants, overdue, wrong
}

// TestJudgeOfFences: on Postgres the number of an insert is no fence of a holder. The number of the update after it
// is.
func TestJudgeOfFences(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "pgx", "")
	p.exec(t, noteChanges[p.kind]...)
	history := func(fence int) {
		t.Helper()
		p.exec(t,
			`INSERT INTO notes (op, name, fence, since, expires, at) VALUES ('INSERT', 'l', 161, 10, 20, 10), ('UPDATE', 'l', 162, 10, 20, 10), ('DELETE', 'l', 162, 10, 20, 11),
 ('INSERT', 'l', 160, 12, 20, 12), `+fmt.Sprintf(`('UPDATE', 'l', %d, 12, 20, 12)`, fence))
	}
	history(163)
	if grants, _, wrong := judgeNotes(t, p); grants != 2 || len(wrong) > 0 {
		t.Errorf("%d grants, %q", grants, wrong)
	}
	p.exec(t, `DELETE FROM notes`)
	history(160)
	if _, _, wrong := judgeNotes(t, p); !slices.Equal(wrong, []string{"l: fence 160 after 162"}) {
		t.Errorf("a holder has a fence that was drawn before a higher one was given: %q", wrong)
	}
}

// judgeSeen checks the numbers of effects that the holders recorded, and returns how many records there are.
func judgeSeen(t *testing.T, p *place, file string) (seen int) {
	text, err := os.ReadFile(file)
	must.OK(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); seen++ {
		var name string
		var fence, n int64
		if _, err := fmt.Sscan(lines.Text(), &name, &fence, &n); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if now := p.number(t, fmt.Sprintf(`SELECT count(*) FROM effects WHERE name = '%s' AND fence < %d`, name,
			fence)); now != n {
			t.Errorf("%s: fence %d began after %d effects of earlier holders, and there are %d", name, fence, n, now)
		}
	}
	return seen
}
