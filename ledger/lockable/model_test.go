package lockable_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/lockable"
)

// chore is a row of the table.
type chore struct {
	A    int    `db:"a,key"`
	B    string `db:"b,key"`
	Rank int    `db:"rank"`
}

// kept is a row as the model has it.
type kept struct {
	chore
	open    bool
	agent   string // "" is free
	token   string
	expired bool
}

// model is what the table must be like after the same operations.
type model struct {
	*place
	claimer *lockable.Claimer[chore]
	tokens  bool
	rows    []*kept
	given   []given // all claims ever
}

type given struct {
	agent   string
	claimed lockable.Claimed[chore]
}

var agents = rapid.SampledFrom([]string{"ann", "bob", "o'neill"})

// held returns the row of an earlier claim if the claim is still valid, else nil.
func (m *model) held(agent string, c lockable.Claimed[chore]) *kept {
	for _, k := range m.rows {
		if k.A == c.Row.A && k.B == c.Row.B && k.agent == agent && (!m.tokens || k.token == c.LockID) {
			return k
		}
	}
	return nil
}

// Insert adds a row.
func (m *model) Insert(t *rapid.T) {
	k := &kept{chore{rapid.IntRange(0, 3).Draw(t, "a"), rapid.SampledFrom([]string{"x", "y", "it's", ""}).Draw(t, "b"),
		rapid.IntRange(0, 3).Draw(t, "rank")}, true, "", "", false}
	if slices.ContainsFunc(m.rows, func(o *kept) bool { return o.A == k.A && o.B == k.B }) {
		t.Skip("known")
	}
	m.do(`INSERT INTO chore (a, b, rank) VALUES ($1, $2, $3)`, k.A, k.B, k.Rank)
	m.rows = append(m.rows, k)
}

// Claim compares which rows come, in which order, and under which tokens.
func (m *model) Claim(t *rapid.T) {
	agent, limit := agents.Draw(t, "agent"), rapid.IntRange(1, 6).Draw(t, "limit")
	var want []*kept
	for _, k := range m.rows {
		if k.open && (k.agent == "" || k.agent == agent || k.expired) {
			want = append(want, k)
		}
	}
	slices.SortFunc(want, func(x, y *kept) int {
		other := func(k *kept) int { return map[bool]int{false: 1}[k.agent == agent] }
		return cmp.Or(cmp.Compare(other(x), other(y)), cmp.Compare(y.Rank, x.Rank), cmp.Compare(x.B, y.B),
			cmp.Compare(x.A, y.A))
	})
	want = want[:min(limit, len(want))]
	got, err := m.claimer.Claim(m.Context(), agent, limit)
	must.OK(t, err)
	if len(got) != len(want) {
		t.Fatalf("%s got %d rows, want %d", agent, len(got), len(want))
	}
	fresh := ""
	for i, c := range got {
		k := want[i]
		if c.Row != k.chore {
			t.Fatalf("row %d of %s is %v, want %v", i, agent, c.Row, k.chore)
		}
		keeps := k.agent == agent && !k.expired
		switch {
		case m.tokens && keeps && c.LockID != k.token:
			t.Fatalf("%v has a new token, and was held all the time", c.Row)
		case m.tokens && !keeps && (c.LockID == k.token || fresh != "" && c.LockID != fresh):
			t.Fatalf("%v has token %s, had %s", c.Row, c.LockID, k.token)
		case m.tokens && !keeps:
			fresh = c.LockID
		}
		k.agent, k.token, k.expired = agent, c.LockID, false
		m.given = append(m.given, given{agent, c})
	}
}

// some draws earlier claims of different rows, and the agent of one of all claims.
func (m *model) some(t *rapid.T, most int) (agent string, claims []lockable.Claimed[chore]) {
	if len(m.given) == 0 {
		t.Skip("none yet")
	}
	g := rapid.SampledFrom(m.given).Draw(t, "claim")
	for range rapid.IntRange(1, most).Draw(t, "claims") {
		if o := rapid.SampledFrom(m.given).Draw(t, "claim"); !slices.ContainsFunc(claims,
			func(c lockable.Claimed[chore]) bool { return c.Row.A == o.claimed.Row.A && c.Row.B == o.claimed.Row.B }) {
			claims = append(claims, o.claimed)
		}
	}
	return g.agent, claims
}

// Extend and Release take effect on what is still held, and count it.
func (m *model) Extend(t *rapid.T) {
	m.rewrite(t, m.claimer.Extend, func(k *kept) { k.expired = false })
}

func (m *model) Release(t *rapid.T) {
	m.rewrite(t, m.claimer.Release, func(k *kept) { k.agent, k.token, k.expired = "", "", false })
}

func (m *model) rewrite(t *rapid.T,
	call func(ctx context.Context, agent any, rows ...lockable.Claimed[chore]) (int, error), effect func(*kept)) {
	agent, claims := m.some(t, 4)
	want := 0
	for _, c := range claims {
		if k := m.held(agent, c); k != nil {
			want++
			effect(k)
		}
	}
	if n, err := call(m.Context(), agent, claims...); n != want || err != nil {
		t.Fatalf("%d, %v; want %d", n, err, want)
	}
}

// Finish changes the row if the claim is good, and else nothing.
func (m *model) Finish(t *rapid.T) {
	agent, claims := m.some(t, 1)
	open := rapid.Bool().Draw(t, "open")
	err := m.claimer.Finish(m.Context(), agent, claims[0], map[string]any{"open": open})
	if k := m.held(agent, claims[0]); k == nil {
		if !errors.Is(err, ledger.ErrLeaseLost) {
			t.Fatalf("got %v", err)
		}
	} else if k.open, k.agent, k.token, k.expired = open, "", "", false; err != nil {
		t.Fatal(err)
	}
}

// Expire lets time pass for some rows.
func (m *model) Expire(t *rapid.T) {
	a := rapid.IntRange(0, 3).Draw(t, "a")
	m.expire("chore", "expires_at", fmt.Sprintf("a = %d AND locked_by IS NOT NULL", a))
	for _, k := range m.rows {
		k.expired = k.expired || k.A == a && k.agent != ""
	}
}

// Open flips the condition of some rows, held or not.
func (m *model) Open(t *rapid.T) {
	a := rapid.IntRange(0, 3).Draw(t, "a")
	m.do(`UPDATE chore SET open = NOT open WHERE a = $1`, a)
	for _, k := range m.rows {
		k.open = k.open != (k.A == a)
	}
}

// ReleaseExpired frees what has expired, open or not.
func (m *model) ReleaseExpired(t *rapid.T) {
	want := 0
	for _, k := range m.rows {
		if k.expired {
			want++
			k.agent, k.token, k.expired = "", "", false
		}
	}
	if n, err := m.claimer.ReleaseExpired(m.Context(), 100); n != want || err != nil {
		t.Fatalf("%d, %v; want %d", n, err, want)
	}
}

// Check compares the whole table.
func (m *model) Check(t *rapid.T) {
	rows, err := m.Query(m.Context(),
		`SELECT a, b, rank, open, coalesce(locked_by, ''), coalesce(lock_id, ''), expires_at IS NULL FROM chore`)
	must.OK(t, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var r kept
		var free bool
		must.OK(t, rows.Scan(&r.A, &r.B, &r.Rank, &r.open, &r.agent, &r.token, &free))
		i := slices.IndexFunc(m.rows, func(k *kept) bool { return k.A == r.A && k.B == r.B })
		if k := m.rows[i]; k.agent != r.agent || k.open != r.open || m.tokens && k.token != r.token ||
			free != (k.agent == "") {
			t.Fatalf("table has %+v, model %+v", r, *k)
		}
	}
	if n != len(m.rows) {
		t.Fatalf("%d rows, want %d", n, len(m.rows))
	}
}

// TestModel compares the table with a list in memory after each of many random operations.
func TestModel(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := flag.Set("rapid.checks", "30"); err != nil { // of some 30 operations each; more by the flag
			t.Fatal(err)
		}
	}
	for _, scheme := range []string{"sqlite", "postgres"} {
		t.Run(scheme, func(t *testing.T) {
			p := open(t, empty(t, scheme))
			p.do(
				`CREATE TABLE chore (a int NOT NULL, b text NOT NULL, rank int NOT NULL, open boolean NOT NULL DEFAULT true, locked_by text, expires_at timestamptz, lock_id text, PRIMARY KEY (a, b))`)
			p.do(`CREATE INDEX chore_expires ON chore (expires_at)`)
			with := lockable.Table{Name: "chore", Where: "open", OrderBy: "rank DESC, b, a", LockID: "lock_id"}
			if scheme == "postgres" {
				with.OrderBy = `rank DESC, b COLLATE "C", a`
			}
			without := with
			without.LockID = ""
			claimers := map[bool]*lockable.Claimer[chore]{true: claimer[chore](t, p, with), false: claimer[chore](t, p, without)}
			rapid.Check(t, func(r *rapid.T) {
				p.do(`DELETE FROM chore`)
				tokens := rapid.Bool().Draw(r, "tokens")
				m := &model{place: p, claimer: claimers[tokens], tokens: tokens}
				r.Repeat(map[string]func(*rapid.T){ // Insert and Claim are twice as frequent as others
					"Insert": m.Insert, "Insert2": m.Insert, "Claim": m.Claim, "Claim2": m.Claim, "Extend": m.Extend,
					"Release": m.Release, "Finish": m.Finish, "Expire": m.Expire, "Open": m.Open,
					"ReleaseExpired": m.ReleaseExpired, "": m.Check})
			})
		})
	}
}
