package where

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

func TestBuild(t *testing.T) {
	since := time.Date(2026, 11, 20, 10, 0, 0, 1500, time.UTC) // between two microseconds
	upper := time.Date(2026, 11, 20, 10, 0, 0, 2000, time.UTC)
	tests := map[string]struct {
		filter       ledger.Filter
		postgres     string
		postgresArgs []any
		sqlite       string
		sqliteArgs   []any
	}{
		"everything": {ledger.Filter{}, "true", nil, "true", nil},
		"ids": {ledger.IDs(7, 8),
			"i.id = ANY($2)", []any{[]int64{7, 8}},
			"i.id IN (SELECT value FROM json_each(?2))", []any{"[7,8]"}},
		"identity": {ledger.Filter{Kinds: []string{"mail"}, Scopes: []string{""}, Key: "a%_'"},
			"i.kind = ANY($2) AND i.scope = ANY($3) AND i.key = $4", []any{[]string{"mail"}, []string{""}, "a%_'"},
			"i.kind IN (SELECT value FROM json_each(?2)) AND i.scope IN (SELECT value FROM json_each(?3)) AND i.key = ?4", []any{
				`["mail"]`, `[""]`, "a%_'"}},
		"states": {ledger.Filter{States: []ledger.State{ledger.StateCancelled, ledger.StateReady}},
			"(b.state = 1 OR b.state = 0 AND b.due_at <= NOW OR b.item_id IS NULL AND (a.outcome = 5 OR a.period IS NOT NULL))", nil,
			"(b.state = 1 OR b.state = 0 AND b.due_at <= NOW OR b.item_id IS NULL AND (a.outcome = 5 OR a.period IS NOT NULL))", nil},
		"no such state": {ledger.Filter{States: []ledger.State{"gone"}}, "(false)", nil, "(false)", nil},
		"agent and code": {ledger.Filter{Agents: []string{"ann"}, Codes: []string{"http_404", "dns"}},
			"(coalesce(b.locked_by, '') = ANY($2) OR rtrim(b.locked_by, '0123456789') = ANY($3)) AND coalesce(a.code, '') = ANY($4)",
			[]any{[]string{"ann"}, []string{"ann/"}, []string{"http_404", "dns"}},
			"(coalesce(b.locked_by, '') IN (SELECT value FROM json_each(?2)) OR rtrim(b.locked_by, '0123456789') IN (SELECT " +
				"value FROM json_each(?3)))" +
				" AND coalesce(a.code, '') IN (SELECT value FROM json_each(?4))",
			[]any{`["ann"]`, `["ann/"]`, `["http_404","dns"]`}},
		"parts": {ledger.Filter{Prefix: "/in/", KeyHas: "x", ErrorHas: "50%"},
			"i.key >= $2 AND i.key < $3 AND strpos(i.key, $4) > 0 AND strpos(a.error, $5) > 0", []any{"/in/", "/in0", "x",
				"50%"},
			"i.key >= ?2 AND i.key < ?3 AND instr(i.key, ?4) > 0 AND instr(a.error, ?5) > 0", []any{"/in/", "/in0", "x", "50%"}},
		"since": {ledger.Filter{Since: since},
			"(i.created_at >= $2 OR a.finished_at >= $2)", []any{upper},
			"(i.created_at >= ?2 OR a.finished_at >= ?2)", []any{upper.UnixMicro()}},
		"outages": {ledger.Filter{FailingTo: since, RecoveredFrom: since, RecoveredTo: upper},
			"i.failing_since < $2 AND i.recovered_at >= $3 AND i.recovered_at < $4", []any{upper, upper, upper},
			"i.failing_since < ?2 AND i.recovered_at >= ?3 AND i.recovered_at < ?4", []any{upper.UnixMicro(), upper.UnixMicro(),
				upper.UnixMicro()}},
		"what no ledger can hold": {ledger.Filter{Kinds: []string{"\xff"}, Key: "a\x00"},
			"i.kind = ANY($2) AND false", []any{[]string{}},
			"i.kind IN (SELECT value FROM json_each(?2)) AND false", []any{"[]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := []any{"first"}
			sql, args := Build(tt.filter, Postgres, "NOW", before)
			if diff := cmp.Diff(tt.postgres, sql); diff != "" {
				t.Errorf("Postgres (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]any{"first"}, tt.postgresArgs...), args); diff != "" {
				t.Errorf("arguments on Postgres (-want +got):\n%s", diff)
			}
			sql, args = Build(tt.filter, SQLite, "NOW", before)
			if diff := cmp.Diff(tt.sqlite, sql); diff != "" {
				t.Errorf("SQLite (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]any{"first"}, tt.sqliteArgs...), args); diff != "" {
				t.Errorf("arguments on SQLite (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSuccessor(t *testing.T) {
	for prefix, want := range map[string]string{
		"a": "b", "az": "a{", "a\u007f": "a\u0080", "\uD7FF": "\uE000", "a\U0010FFFF": "b", "\U0010FFFF": "",
	} {
		if got := successor(prefix); got != want {
			t.Errorf("successor(%q) = %q, want %q", prefix, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s, prefix := rapid.String().Draw(t, "s"), rapid.StringN(1, 3, -1).Draw(t, "prefix")
		if rapid.Bool().Draw(t, "begins") {
			s = prefix + s
		}
		end := successor(prefix)
		if got := s >= prefix && (end == "" || s < end); got != strings.HasPrefix(s, prefix) {
			t.Fatalf("%q in [%q, %q): %v", s, prefix, end, got)
		}
	})
}
