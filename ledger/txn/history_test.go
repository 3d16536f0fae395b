package txn_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// step is a transaction that a process is asked for: a transfer, or a look at some accounts.
type step struct {
	ID       int
	Accounts []int64 // of a transfer: from, to
	Cents    int64   // 0: a look

	// The answer, and the row of a transfer in the table "moves".
	Refused  bool
	Versions []int64 // of the accounts, as they were read
	Balances []int64

	asked, answered int64 // logical times of the test; answered is 0 without an answer
}

func init() { childtest.Runs["steps"] = stepsChild }

// stepsChild does the steps that it reads, one after the other, and answers each when it is committed.
func stepsChild(ctx context.Context, args []string) error {
	p, err := open(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	defer p.close()
	run := p.with(txn.Config{})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return err
		}
		err := run(ctx, func(ctx context.Context, c ledger.Conn) error { return s.do(ctx, c) })
		if s.Refused = errors.Is(err, errPoor); err != nil && !s.Refused {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// do does a step within a transaction, and writes down what it read.
func (s *step) do(ctx context.Context, c ledger.Conn) error {
	keys := make([]string, len(s.Accounts))
	for i, id := range s.Accounts {
		keys[i] = account(id)
	}
	if err := txn.Lock(ctx, keys...); err != nil {
		return err
	}
	s.Versions, s.Balances = nil, nil
	for _, id := range s.Accounts {
		for column, to := range map[string]*[]int64{"version": &s.Versions, "cents": &s.Balances} {
			v, err := value[int64](ctx, c, "SELECT "+column+" FROM account WHERE id = $1", id)
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
	}
	switch {
	case s.Cents == 0:
		return nil
	case s.Balances[0] < s.Cents:
		return errPoor
	}
	for i, cents := range []int64{-s.Cents, s.Cents} {
		if _, err := c.Exec(ctx, "UPDATE account SET cents = $1, version = $2 WHERE id = $3", s.Balances[i]+cents,
			s.Versions[i]+1, s.Accounts[i]); err != nil {
			return err
		}
	}
	record, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "INSERT INTO moves VALUES ($1)", string(record)) // no key: it could be there twice
	return err
}

// Four processes move money at random between few accounts and are killed at random moments. Each transfer that was
// acknowledged took effect once, each other transfer at most once. Some order of all steps explains what each of them
// read, and in that order no step precedes one that had been answered before it was asked for.
func TestHistory(t *testing.T) {
	for _, kind := range []string{"sqlite", "pgx"} {
		t.Run(kind, func(t *testing.T) {
			p := newBank(t, kind)
			p.exec(t, "ALTER TABLE account ADD COLUMN version BIGINT NOT NULL DEFAULT 0",
				"CREATE TABLE moves (record TEXT NOT NULL)")
			var clock, ids, kills atomic.Int64
			histories := make([][]*step, 4)
			var all sync.WaitGroup
			for i := range histories {
				all.Go(func() {
					c := newSteps(t, p)
					for range 60 {
						s := randomStep(int(ids.Add(1)))
						histories[i] = append(histories[i], s)
						s.asked = clock.Add(1)
						answered, killed := c.ask(t, s)
						if answered {
							s.answered = clock.Add(1)
						}
						if killed {
							kills.Add(1)
							c = newSteps(t, p)
						}
					}
					c.In.Close()
					c.Done(t)
				})
			}
			all.Wait()
			h := slices.Concat(histories...)
			moved := recorded(t, p)
			t.Logf("%d steps, %d transfers took effect, %d processes were killed", len(h), len(moved), kills.Load())
			if kills.Load() == 0 {
				t.Error("no process was killed")
			}
			sound(t, p)
			for _, bad := range judge(h, moved) {
				t.Error(bad)
			}
		})
	}
}

func randomStep(id int) *step {
	s := &step{ID: id, Accounts: make([]int64, 2+rand.IntN(2))}
	for i, a := range rand.Perm(4)[:len(s.Accounts)] {
		s.Accounts[i] = int64(a)
	}
	if len(s.Accounts) == 2 {
		s.Cents = 1 + rand.Int64N(60)
	}
	return s
}

// stepRunner is a stepsChild.
type stepRunner struct{ *childtest.Child }

func newSteps(t *testing.T, p *place) stepRunner {
	return stepRunner{childtest.Start(t, "steps", p.kind, p.url)}
}

// ask reports whether the step was answered. Once in ten times the process is killed meanwhile.
func (c stepRunner) ask(t *testing.T, s *step) (answered, killed bool) {
	line, err := json.Marshal(s)
	if err == nil {
		_, err = c.In.Write(append(line, '\n'))
	}
	must.OK(t, err)
	if killed = rand.IntN(10) == 0; killed {
		timer := time.AfterFunc(rand.N(4*time.Millisecond), func() { c.Process.Kill() })
		defer func() {
			timer.Stop()
			c.Process.Kill()
			c.Wait()
		}()
	}
	if !c.Lines.Scan() {
		if !killed {
			c.Wait()
			t.Errorf("a process ended: %s", c.Errs.String())
		}
		return false, true
	}
	if err := json.Unmarshal(c.Lines.Bytes(), s); err != nil && !killed {
		t.Error(err)
	} else if err != nil { // half a line
		return false, true
	}
	return true, killed
}

// recorded returns the transfers that took effect.
func recorded(t *testing.T, p *place) (moved []*step) {
	t.Helper()
	rows, err := p.conn.Query(t.Context(), "SELECT record FROM moves")
	must.OK(t, err)
	defer rows.Close()
	for rows.Next() {
		var record string
		s := &step{}
		must.OK(t, errors.Join(rows.Scan(&record), json.Unmarshal([]byte(record), s)))
		moved = append(moved, s)
	}
	must.OK(t, rows.Err())
	return moved
}

// judge describes what is wrong with a history and what is recorded of it.
func judge(history, moved []*step) (bad []string) {
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	times := map[int]int{}
	records := map[int]*step{}
	for _, m := range moved {
		times[m.ID]++
		records[m.ID] = m
	}
	var done []*step // what took effect or was read
	for _, s := range history {
		n := times[s.ID]
		delete(times, s.ID)
		switch transfer := s.Cents > 0 && !s.Refused; {
		case s.answered == 0 && n == 1: // it took effect before its process was killed
			s.Versions, s.Balances = records[s.ID].Versions, records[s.ID].Balances
			done = append(done, s)
		case s.answered == 0 && n == 0:
		case s.answered > 0 && (transfer && n == 1 || !transfer && n == 0):
			done = append(done, s)
		default:
			complain("step %d, acknowledged: %v, refused: %v, took effect %d times", s.ID, s.answered > 0, s.Refused, n)
		}
	}
	for id := range times {
		complain("no process asked for step %d", id)
	}
	order, err := explain(done)
	if err != nil {
		return append(bad, err.Error())
	}
	return append(bad, replay(order)...)
}

// explain sorts steps so that each comes after those whose effects it read and after those that were
// answered before it was asked for, and before those that wrote over what it read.
func explain(steps []*step) (order []*step, err error) {
	type version struct{ account, number int64 }
	writers := map[version]*step{}
	for _, s := range steps {
		for i, a := range s.Accounts {
			if s.Cents == 0 || s.Refused {
				continue
			}
			v := version{a, s.Versions[i] + 1}
			if other := writers[v]; other != nil {
				return nil, fmt.Errorf("steps %d and %d have both written version %d of account %d: one of them is lost", other.ID,
					s.ID, v.number, a)
			}
			writers[v] = s
		}
	}
	after := map[*step][]*step{}
	before := map[*step]int{}
	follows := func(a, b *step) {
		if a != nil && b != nil && a != b {
			after[a] = append(after[a], b)
			before[b]++
		}
	}
	for _, s := range steps {
		for i, a := range s.Accounts {
			follows(writers[version{a, s.Versions[i]}], s)
			follows(s, writers[version{a, s.Versions[i] + 1}])
		}
		for _, other := range steps {
			if other.answered > 0 && other.answered < s.asked {
				follows(other, s)
			}
		}
	}
	var free []*step
	for _, s := range steps {
		if before[s] == 0 {
			free = append(free, s)
		}
	}
	for ; len(free) > 0; free = free[1:] {
		order = append(order, free[0])
		for _, s := range after[free[0]] {
			if before[s]--; before[s] == 0 {
				free = append(free, s)
			}
		}
	}
	if len(order) < len(steps) {
		return nil, fmt.Errorf("no order explains what %d steps have read", len(steps)-len(order))
	}
	return order, nil
}

// replay does the steps one after the other and compares what they read.
func replay(order []*step) (bad []string) {
	balances, versions := [accounts]int64{}, [accounts]int64{}
	for i := range balances {
		balances[i] = opening
	}
	for _, s := range order {
		for i, a := range s.Accounts {
			if s.Versions[i] != versions[a] || s.Balances[i] != balances[a] {
				bad = append(bad, fmt.Sprintf("step %d read %d (version %d) in account %d, in which were %d (version %d)",
					s.ID, s.Balances[i], s.Versions[i], a, balances[a], versions[a]))
			}
		}
		if s.Cents > 0 && !s.Refused {
			for i, cents := range []int64{-s.Cents, s.Cents} {
				balances[s.Accounts[i]] += cents
				versions[s.Accounts[i]]++
			}
		}
	}
	return bad
}

// judge finds each kind of fault, and none in a sound history.
func TestJudge(t *testing.T) {
	move := func(id int, asked, answered int64, v0, v1, b0, b1 int64) *step {
		return &step{ID: id, Accounts: []int64{0, 1}, Cents: 10, Versions: []int64{v0, v1}, Balances: []int64{b0, b1},
			asked: asked, answered: answered}
	}
	look := func(id int, asked, answered int64, v0, v1, b0, b1 int64) *step {
		s := move(id, asked, answered, v0, v1, b0, b1)
		s.Cents = 0
		return s
	}
	first, second := move(1, 1, 2, 0, 0, 100, 100), move(2, 3, 4, 1, 1, 90, 110)
	for name, tt := range map[string]struct {
		history, moved []*step
		message        string // "" if all is well
	}{
		"well":                   {[]*step{first, second, look(3, 1, 9, 1, 1, 90, 110)}, []*step{first, second}, ""},
		"killed, took effect":    {[]*step{first, move(2, 3, 0, 1, 1, 90, 110)}, []*step{first, second}, ""},
		"killed, took no effect": {[]*step{first, move(2, 3, 0, 1, 1, 90, 110)}, []*step{first}, ""},
		"acknowledged, and lost": {[]*step{first, second}, []*step{first}, "step 2, acknowledged: true, refused: false, " +
			"took effect 0 times"},
		"twice": {[]*step{first, move(2, 3, 0, 1, 1, 90, 110)}, []*step{first, second, second},
			"took effect 2 times"},
		"out of the blue": {[]*step{first}, []*step{first, second}, "no process asked for step 2"},
		"written over": {[]*step{first, move(2, 1, 4, 0, 0, 100, 100)},
			[]*step{first, move(2, 1, 4, 0, 0, 100, 100)}, "one of them is lost"},
		"half of another's":       {[]*step{first, look(3, 1, 9, 1, 0, 90, 100)}, []*step{first}, "no order explains"},
		"old":                     {[]*step{first, look(3, 3, 4, 0, 0, 100, 100)}, []*step{first}, "no order explains"},
		"a balance from nowhere":  {[]*step{first, look(3, 3, 4, 1, 1, 95, 105)}, []*step{first}, "step 3 read 95"},
		"what does not exist yet": {[]*step{first, look(3, 3, 4, 2, 1, 80, 110)}, []*step{first}, "step 3 read 80"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Join(judge(tt.history, tt.moved), "; ")
			if (bad == "") != (tt.message == "") || !strings.Contains(bad, tt.message) {
				t.Errorf("%q", bad)
			}
		})
	}
}
