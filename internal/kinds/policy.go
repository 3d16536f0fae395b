package kinds

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// PolicyWriter remembers which policies a process has written to the ledger: the whole policy of a kind once,
// and after that only what has changed in the config.
type PolicyWriter struct {
	Name    string // for the journal
	mu      sync.Mutex
	Written map[string]*config.Kind
}

// last is the policy of a kind as it was written last; nil if it was not written.
func (w *PolicyWriter) last(kind string) *config.Kind {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Written[kind]
}

func (w *PolicyWriter) note(kind string, written *config.Kind) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Written[kind] = written
}

// writer is the name for the journal of what writes policies.
func (lc *Local) writer() string {
	if lc.Policies != nil {
		return lc.Policies.Name
	}
	return Process()
}

// Introduce adds a new kind to the ledger with its plugin's defaults, and writes the policy of the
// config. It prints the values that it replaces.
func (lc *Local) Introduce(ctx context.Context, l ledgers.Any, k *Kind) error {
	news := k.Config.Since(lc.Policies.last(k.Name))
	var replaced []config.PolicyDifference
	configured := func(have *ledger.Kind, _ bool) {
		given, isNew := news, Untouched(*have)
		*have = k.Plugin.Defaults(k.Name, *have) // another process may have set it just now
		if k.takesAny() {
			have.Input = k.Input()
		}
		if k.Plugin != nil {
			have.Input.Secret = k.Schema.Secrets()
		}
		if replaced = lc.Config.PolicyDifferences(given, *have); isNew {
			given, replaced = k.Config, nil
		}
		given.Policy(have)
	}
	if policy := k.Policy; k.Known {
		if configured(&policy, true); reflect.DeepEqual(policy, k.Policy) {
			lc.Policies.note(k.Name, k.Config)
			return nil
		}
	}
	err := k.edit(ctx, l, lc.writer(), configured)
	if err != nil {
		return err
	}
	lc.Policies.note(k.Name, k.Config)
	lc.sayReplaced(k.Name, replaced)
	return nil
}

// sayReplaced prints the values of the ledger that the config has replaced.
func (lc *Local) sayReplaced(kind string, all []config.PolicyDifference) {
	if len(all) == 0 {
		return
	}
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = d.String()
	}
	lc.notice("kind %s: set by the config: %s", kind, strings.Join(texts, ", "))
}

// PolicyFindings are the policies that differ between the ledger and the config.
func (lc *Local) PolicyFindings(kinds []ledger.Kind) (all []finding.Finding) {
	for _, k := range kinds {
		for _, d := range lc.Config.PolicyDifferences(lc.Config.Kind(k.Name), k) {
			all = append(all,
				finding.Warning("policy", fmt.Sprintf("%s of kind %s is %s in the ledger, and %s in the config (%s)", d.Key, k.Name,
					d.Have, d.Want, d.Origin),
					"the ledger's value is in force until a command adds to the kind or works it with this config, or a daemon "+
						"starts with it",
					fmt.Sprintf("change the config, or the ledger: ledgerd kind set %s --%s", k.Name, strings.ReplaceAll(d.Key, "_",
						"-")+"="+strings.Trim(d.Want, `"`))))
		}
	}
	return all
}
