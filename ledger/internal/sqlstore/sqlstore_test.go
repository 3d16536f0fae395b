package sqlstore

import (
	"testing"
	"time"
)

func TestDialects(t *testing.T) {
	for name, tt := range map[string]struct{ statement, postgres, sqlite string }{
		"schema, numbers, casts": {
			`SELECT sum(n)::bigint, $2::text[] FROM {{S}}.ledger_x x WHERE x.a = $1`,
			`SELECT sum(n)::bigint, $2::text[] FROM {{S}}.ledger_x x WHERE x.a = $1`,
			`SELECT sum(n), ?2 FROM ledger_x x WHERE x.a = ?1`},
		"lists": {
			`kind = ANY($12) AND x`, `kind = ANY($12) AND x`, `kind IN (SELECT value FROM json_each(?12)) AND x`},
		"locks of rows": {
			`a FOR UPDATE OF p SKIP LOCKED) b FOR SHARE`, `a FOR UPDATE OF p SKIP LOCKED) b FOR SHARE`, `a) b`},
		"an index, functions, the clock": {
			`FROM t {{BY i}} WHERE least(a, {{NOW}}) > greatest(b, c)`, `FROM t  WHERE least(a, {{NOW}}) > greatest(b, c)`, `FROM t INDEXED BY i WHERE min(a, {{NOW}}) > max(b, c)`},
	} {
		if got := ForPostgres(tt.statement); got != tt.postgres {
			t.Errorf("%s: for Postgres %q, want %q", name, got, tt.postgres)
		}
		if got := ForSQLite(tt.statement); got != tt.sqlite {
			t.Errorf("%s: for SQLite %q, want %q", name, got, tt.sqlite)
		}
	}
}

func TestPace(t *testing.T) {
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	p := Pace{Every: time.Second}
	due := func(after time.Duration, want bool) {
		t.Helper()
		if got := p.Due(start.Add(after)); got != want {
			t.Errorf("due %v after the last look: %v, want %v", after, got, want)
		}
	}
	due(0, true)
	p.Took(start, time.Millisecond)
	due(999*time.Millisecond, false)
	due(time.Second, true)
	due(-time.Second, true) // the clock was set back
	p.Took(start, time.Second)
	due(19*time.Second, false)
	due(20*time.Second, true)
	p.Every = 0
	due(0, true)
}
