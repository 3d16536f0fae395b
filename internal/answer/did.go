package answer

import (
	"cmp"
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
)

// maxDid bounds the sentence of Did, in cells of a terminal.
const maxDid = 400

// By returns the name of the actor for people.
func (j Journal) By() string { return strings.TrimPrefix(j.Actor, "operator:") }

// Did describes an act for people by its verb, what was changed, and Detail: "retried 49 items: --where
// 'kind:links state:dead'", "changed kind a: max_failures: 5 → 3".
func (j Journal) Did() string {
	items, whose := report.Plural(j.Changed, "item"), "their holders"
	if j.Changed == 1 && strings.HasPrefix(j.Subject, "item ") {
		items, whose = j.Subject, "its holder"
	}
	did := map[string]string{
		"pause": "paused kind " + j.Subject, "resume": "resumed kind " + j.Subject, "set-kind": "changed kind " + j.Subject,
		"define": "works kind " + j.Subject, "prune": "pruned " + items + " of " + j.Subject,
		"restore": "restored the ledger from " + j.Subject, "restored": "restored the ledger",
		"moved": "recorded where the ledger is", "set-environment": "set the environment of the ledger",
		"release-lock": "took lock " + j.Subject,
		"retry":        "retried " + items, "reopen": "reopened " + items, "cancel": "cancelled " + items,
		"forget": "removed " + items, "release": "took " + items + " from " + whose, "decide": "decided " + items,
		"put-off": "changed the due time of " + items, "place": "changed the priority of " + items,
	}[j.Action]
	return report.Cut(cmp.Or(did, j.Action+" "+j.Subject)+report.Prefixed(": ", j.Detail), maxDid)
}
