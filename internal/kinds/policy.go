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
	Name    string   // for the journal
	written sync.Map // name of a kind → *config.Kind
}

// last returns the policy of a kind as it was written last; nil if it was not written, or w is nil.
func (w *PolicyWriter) last(kind string) *config.Kind {
	if w == nil {
		return nil
	}
	written, _ := w.written.Load(kind)
	k, _ := written.(*config.Kind)
	return k
}

// note remembers the policy that was written for a kind. On a nil writer it does nothing.
func (w *PolicyWriter) note(kind string, k *config.Kind) {
	if w != nil {
		w.written.Store(kind, k)
	}
}

// writer returns the name that the journal has for changes of policies by this process.
func (lc *Local) writer() string {
	if lc.Policies != nil {
		return lc.Policies.Name
	}
	return Process()
}

// Introduce adds a new kind to the ledger with its plugin's defaults, and writes the policy of the config into the
// ledger. Of a kind that has a policy it writes only the values that this process has not written before, and prints
// those that they replace.
func (lc *Local) Introduce(ctx context.Context, l ledgers.Any, k *Kind) error {
	changed := k.Config.Since(lc.Policies.last(k.Name))
	var replaced []config.PolicyDifference
	configured := func(have *ledger.Kind, _ bool) {
		given, isNew := changed, Untouched(*have) // another process may have changed it meanwhile
		*have = k.Plugin.Defaults(k.Name, *have)
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
	if policy := k.Policy; k.Known { // a transaction is not needed if nothing changes
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

// PolicyFindings warns of the policies that differ between the ledger and the config, for doctor.
func (lc *Local) PolicyFindings(kinds []ledger.Kind) (all []finding.Finding) {
	for _, k := range kinds {
		for _, d := range lc.Config.PolicyDifferences(lc.Config.Kind(k.Name), k) {
			all = append(all,
				finding.Warning("policy", fmt.Sprintf("%s of kind %s is %s in the ledger, and %s in the config (%s)", d.Key, k.Name,
					d.Have, d.Want, d.Origin),
					"the ledger's value is in force until a command adds to the kind or works it with this config, or a daemon "+
						"starts with it",
					"change the config, or the ledger: "+policyCommand(k.Name, d)))
		}
	}
	return all
}

// policyCommand is the command that gives the ledger the value of the config.
func policyCommand(kind string, d config.PolicyDifference) string {
	value := strings.Trim(d.Want, `"`)
	switch {
	case d.Key == "paused" && value == "true":
		return "ledgerd kind pause " + kind
	case d.Key == "paused":
		return "ledgerd kind resume " + kind
	case value == "not set" && d.Key == "plugin":
		value = `""`
	case value == "not set":
		value = "0"
	}
	return "ledgerd kind set " + kind + " --" + strings.ReplaceAll(d.Key, "_", "-") + "=" + value
}
