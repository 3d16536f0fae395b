package api

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
)

// TestWords: the words that a field may have according to the description are those that the program knows.
func TestWords(t *testing.T) {
	states := words(health.States)
	verdicts := words([]ledger.Verdict{ledger.VerdictAdded, ledger.VerdictChanged, ledger.VerdictReopened,
		ledger.VerdictKnown, ledger.VerdictDiffers, "refused"})
	acts := words(slices.Sorted(maps.Keys(actStates)))
	for _, c := range []struct {
		of    any
		field string
		want  []any
	}{
		{answer.ActRequest{}, "act", acts}, {answer.BulkAct{}, "act", acts}, {answer.Plugin{}, "state", states},
		{answer.Agent{}, "state", []any{answer.AtWork, answer.Gone, answer.Person}},
		{answer.Kind{}, "on_lost", words([]ledger.OnLost{ledger.OnLostRepeat, ledger.OnLostDoubt})},
		{answer.KindChange{}, "on_lost", words([]ledger.OnLost{ledger.OnLostRepeat, ledger.OnLostDoubt})},
		{answer.Verdict{}, "verdict", verdicts},
		{lending.Ending{}, "outcome", words(slices.DeleteFunc(slices.Clone(ledger.Outcomes), func(o ledger.Outcome) bool {
			return o == ledger.OutcomeLost // a holder cannot report it
		}))},
	} {
		all := newSchemas()
		all.of(reflect.TypeOf(c.of))
		field := all.made[typeName(reflect.TypeOf(c.of))].Properties[c.field]
		if field.Type != "string" || !sameWords(field.Enum, c.want) {
			t.Errorf("%T, %s: %s %v, want %v", c.of, c.field, field.Type, field.Enum, c.want)
		}
	}
}

// sameWords compares two sets.
func sameWords(a, b []any) bool {
	set := func(list []any) map[any]bool {
		all := map[any]bool{}
		for _, w := range list {
			all[w] = true
		}
		return all
	}
	return len(a) == len(b) && maps.Equal(set(a), set(b))
}
