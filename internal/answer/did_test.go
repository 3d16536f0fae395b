package answer_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// TestDid: each action has a sentence with the filter as it was typed, also for entries in the form of older programs.
func TestDid(t *testing.T) {
	const many = "items 3 … 900"
	for _, c := range []struct {
		entry answer.Journal
		want  string
	}{
		{answer.Journal{Action: "retry", Subject: many, Changed: 1049, Detail: "--where 'kind:links state:dead code:http_503'"},
			"retried 1,049 items: kind:links state:dead code:http_503"},
		{answer.Journal{Action: "retry", Subject: "item 7", Changed: 1}, "retried item 7"},
		{answer.Journal{Action: "retry", Subject: many, Changed: 2, Detail: "--where 'error~\"not found\"' --kind a --limit 2"},
			`retried 2 items: error~"not found" --kind a --limit 2`},
		{answer.Journal{Action: "retry", Subject: many, Changed: 2, Detail: "--where 'kind:a it was cu"},
			"retried 2 items: --where 'kind:a it was cu"},
		{answer.Journal{Action: "reopen", Subject: many, Changed: 3, Detail: "try 'a b.txt' --again=0s --due=36h"},
			"reopened 3 items: try 'a b.txt' --again --due=36h"},
		{answer.Journal{Action: "cancel", Subject: "item 3", Changed: 1, Detail: "--reason 'it'\\''s gone' inbox/a.csv"},
			"cancelled 1 item: inbox/a.csv (it's gone)"},
		{answer.Journal{Action: "forget", Subject: many, Changed: 11, Detail: "--scope spring"},
			"removed 11 items: --scope spring"},
		{answer.Journal{Action: "release", Subject: many, Changed: 2, Detail: "--outcome released --where kind:a"},
			"took 2 items from their holders: kind:a"},
		{answer.Journal{Action: "release", Subject: "item 3", Changed: 1}, "took item 3 from its holder"},
		{answer.Journal{Action: "decide", Subject: many, Changed: 2,
			Detail: "--error 'owners told' --outcome skipped --where 'kind:try code:exit_65'"},
			"decided 2 items as skipped: kind:try code:exit_65 (owners told)"},
		{answer.Journal{Action: "decide", Subject: "item 3", Changed: 1, Detail: "done"}, "decided item 3 as done"},
		{answer.Journal{Actor: "api:ops", Action: "decide", Subject: many, Changed: 2,
			Detail: `decide --where error~"a (b) c" id:1,2 --outcome done (seen (twice))`},
			`decided 2 items as done: error~"a (b) c" id:1,2 (seen (twice))`},
		{answer.Journal{Actor: "api:ops", Action: "retry", Subject: many, Changed: 2, Detail: "retry --where state:dead"},
			"retried 2 items: state:dead"},
		{answer.Journal{Actor: "api:ops", Action: "reopen", Subject: many, Changed: 2, Detail: "again"},
			"reopened 2 items: added again"},
		{answer.Journal{Action: "put-off", Subject: many, Changed: 2, Detail: "--where id:1,2 --due 8h"},
			"put off 2 items for 8h: id:1,2"},
		{answer.Journal{Action: "put-off", Subject: many, Changed: 2, Detail: "--due 2026-11-20T06:00 a b"},
			"put off 2 items until 2026-11-20T06:00: a b"},
		{answer.Journal{Action: "put-off", Subject: many, Changed: 2, Detail: "--where round:put_off --due now"},
			"made 2 items due now: round:put_off"},
		{answer.Journal{Action: "place", Subject: "item 3", Changed: 1, Detail: "--priority -2 c"}, "placed 1 item first: c"},
		{answer.Journal{Action: "place", Subject: "item 3", Changed: 1, Detail: "--priority 1 c"},
			"placed 1 item at priority 1: c"},
		{answer.Journal{Action: "place", Subject: "item 3", Changed: 1, Detail: "c"}, "placed 1 item: c"},
		{answer.Journal{Action: "prune", Subject: "kind a", Changed: 1, Detail: "older than 720h0m0s"},
			"pruned 1 item of kind a that ended more than 30d before"},
		{answer.Journal{Action: "pause", Subject: "links", Changed: 1, Detail: "disk full"}, "paused kind links (disk full)"},
		{answer.Journal{Action: "resume", Subject: "links", Changed: 1}, "resumed kind links"},
		{answer.Journal{Action: "set-kind", Subject: "links", Changed: 1,
			Detail: `input_match: not set → ["*.csv","a b"], keep: 720h0m0s → 168h0m0s, max_failures: 5 → 3, rate: 5/s → not set`},
			`changed kind links: input_match not set → *.csv 'a b', keep 30d → 7d, max_failures 5 → 3, rate 5/s → not set`},
		{answer.Journal{Action: "set-kind", Subject: "links", Changed: 1,
			Detail: `defaults: {"a":{"value":"x"},"b":{"value":1}} → {"a":{"value":"y","varied":true},"b":{"value":2,"kept":true}}`},
			`changed kind links: payload.a x → not set, payload.b 1 → 2`},
		{answer.Journal{Action: "set-kind", Subject: "links", Changed: 1,
			Detail: `defaults: {"b":{"value":2}} → {"b":{"value":2,"kept":true}}`},
			`changed kind links: what its items have by default is kept otherwise`},
		{answer.Journal{Action: "define", Subject: "links", Changed: 1, Detail: `"" → "urlcheck@0.1.0+3fa9c1"`},
			"works kind links with urlcheck 0.1.0"},
		{answer.Journal{Action: "define", Subject: "links", Changed: 1,
			Detail: `"urlcheck@0.1.0+3fa9c1" → "urlcheck@0.1.0+3fa9c2"; dir: "" → "/x"; per_host: 20 → 4; snooze: [] → [75]`},
			"works kind links with urlcheck 0.1.0: dir empty → /x, per_host 20 → 4, snooze none → 75"},
		{answer.Journal{Action: "define", Subject: "links", Changed: 1,
			Detail: `"urlcheck@0.1.0+3fa9c1" → "urlcheck@0.2.0+3fa9c1"`},
			"works kind links with urlcheck 0.2.0, before that with urlcheck 0.1.0"},
		{answer.Journal{Action: "define", Subject: "links", Changed: 1,
			Detail: `"urlcheck@0.1.0+3fa9c1" → "urlcheck@0.1.0+3fa9c2"`},
			"works kind links with urlcheck 0.1.0: other settings, which are secret or were not known before"},
		{answer.Journal{Action: "release-lock", Subject: `a "b"`, Changed: 1,
			Detail: `lock "a \"b\"" is held by vm/4711 since 2026-11-26T02:15:44Z, until 2026-11-26T02:16:44Z unless renewed`},
			`took lock a "b" from vm/4711`},
	} {
		if got := c.entry.Did(); got != c.want {
			t.Errorf("%s %q is told as\n%s, not\n%s", c.entry.Action, c.entry.Detail, got, c.want)
		}
	}
	if by := (answer.Journal{Actor: "operator:ann via api:ops"}).By(); by != "ann via api:ops" {
		t.Errorf("by %s", by)
	}
}
