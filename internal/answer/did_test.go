package answer_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// TestDid: a sentence has the verb of the action, what was changed and the detail of the entry.
func TestDid(t *testing.T) {
	const many = "items 3 … 900"
	for _, c := range []struct {
		entry answer.Journal
		want  string
	}{
		{answer.Journal{Action: "retry", Subject: many, Changed: 1049, Detail: "--where 'kind:links state:dead code:http_503'"},
			"retried 1,049 items: --where 'kind:links state:dead code:http_503'"},
		{answer.Journal{Action: "cancel", Subject: "item 3", Changed: 1, Detail: "--reason gone inbox/a.csv"},
			"cancelled item 3: --reason gone inbox/a.csv"},
		{answer.Journal{Action: "release", Subject: many, Changed: 2}, "took 2 items from their holders"},
		{answer.Journal{Action: "release", Subject: "item 3", Changed: 1}, "took item 3 from its holder"},
		{answer.Journal{Action: "decide", Subject: "item 3", Changed: 1, Detail: "done"}, "decided item 3: done"},
		{answer.Journal{Action: "put-off", Subject: many, Changed: 2, Detail: "--where id:1,2 --due 8h"},
			"changed the due time of 2 items: --where id:1,2 --due 8h"},
		{answer.Journal{Action: "prune", Subject: "kind a", Changed: 1, Detail: "older than 30d"},
			"pruned 1 item of kind a: older than 30d"},
		{answer.Journal{Action: "pause", Subject: "links", Changed: 1, Detail: "disk full"}, "paused kind links: disk full"},
		{answer.Journal{Action: "resume", Subject: "links", Changed: 1}, "resumed kind links"},
		{answer.Journal{Action: "set-kind", Subject: "links", Changed: 1, Detail: "keep: 30d → 7d, rate: 5/s → not set"},
			"changed kind links: keep: 30d → 7d, rate: 5/s → not set"},
		{answer.Journal{Action: "new-act", Subject: "links", Changed: 1}, "new-act links"},
	} {
		if got := c.entry.Did(); got != c.want {
			t.Errorf("%s %q is told as\n%s, not\n%s", c.entry.Action, c.entry.Detail, got, c.want)
		}
	}
	if by := (answer.Journal{Actor: "operator:ann via api:ops"}).By(); by != "ann via api:ops" {
		t.Errorf("by %s", by)
	}
}
