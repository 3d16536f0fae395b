package txn_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

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
			done, bad := check(h, moved)
			for _, complaint := range bad {
				t.Error(complaint)
			}
			if !porcupine.CheckOperations(model, done) {
				t.Errorf("no order of these steps explains what each of them read: %+v", done)
			}
			last := done[len(done)-1].Input.(step)
			if last.Balances[0]++; porcupine.CheckOperations(model, done) { // the balances are the same array
				t.Error("a balance that never was is taken for right")
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

// check compares a history with what is recorded of it. It returns the steps that took effect or were read, and
// complains where step and record do not match.
func check(history, moved []*step) (done []porcupine.Operation, bad []string) {
	times, records := map[int]int{}, map[int]*step{}
	for _, m := range moved {
		times[m.ID]++
		records[m.ID] = m
	}
	for _, s := range history {
		n := times[s.ID]
		delete(times, s.ID)
		switch transfer := s.Cents > 0 && !s.Refused; {
		case s.answered == 0 && n == 1: // it took effect before its process was killed
			s.Versions, s.Balances, s.answered = records[s.ID].Versions, records[s.ID].Balances, math.MaxInt64
		case s.answered == 0 && n == 0:
			continue
		case s.answered > 0 && (transfer && n == 1 || !transfer && n == 0):
		default:
			bad = append(bad, fmt.Sprintf("step %d, acknowledged: %v, refused: %v, took effect %d times", s.ID, s.answered > 0,
				s.Refused, n))
		}
		done = append(done, porcupine.Operation{Input: *s, Call: s.asked, Return: s.answered})
	}
	for id := range times {
		bad = append(bad, fmt.Sprintf("no process asked for step %d", id))
	}
	return done, bad
}

// check complains about a record that is missing, is there twice, or belongs to no step.
func TestCheckComplains(t *testing.T) {
	for want, h := range map[string][2][]*step{
		"step 1, acknowledged: true, refused: false, took effect 0 times":  {{{ID: 1, Cents: 9, answered: 2}}, nil},
		"step 1, acknowledged: false, refused: false, took effect 2 times": {{{ID: 1, Cents: 9}}, {{ID: 1}, {ID: 1}}},
		"no process asked for step 1":                                      {nil, {{ID: 1}}},
	} {
		if _, bad := check(h[0], h[1]); !slices.Equal(bad, []string{want}) {
			t.Errorf("%q, want %q", bad, want)
		}
	}
}

// balances is the state of the model: cents and version of each account.
type balances [accounts][2]int64

var model = porcupine.Model{
	Init: func() any {
		var b balances
		for i := range b {
			b[i][0] = opening
		}
		return b
	},
	Step: func(state, input, _ any) (bool, any) {
		b, s := state.(balances), input.(step)
		for i, a := range s.Accounts {
			if b[a] != [2]int64{s.Balances[i], s.Versions[i]} {
				return false, b
			}
		}
		if s.Cents > 0 && !s.Refused {
			for i, cents := range []int64{-s.Cents, s.Cents} {
				b[s.Accounts[i]][0] += cents
				b[s.Accounts[i]][1]++
			}
		}
		return true, b
	},
}
