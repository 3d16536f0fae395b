package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/ledger"
)

// spokesman writes the policies of kinds to the ledger for serve and work: all that the config says
// once, and after that only what the config has come to say otherwise.
type spokesman struct {
	name string // for the journal
	mu   sync.Mutex
	said map[string]*config.Kind // by kind, as it was written last
}

// heard is what the config said of a kind when it was written last; nil if it was not written.
func (s *spokesman) heard(kind string) *config.Kind {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said[kind]
}

func (s *spokesman) note(kind string, says *config.Kind) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[kind] = says
}

// writer is who writes policies, for the journal.
func (a *app) writer() string {
	if a.spokesman != nil {
		return a.spokesman.name
	}
	return process()
}

// introduce makes a kind that is new to the ledger known there, with its plugin's defaults, and
// writes down what the config says of its policy. What it replaces by that it says.
func (a *app) introduce(ctx context.Context, l *ledger.Ledger, k *kind) error {
	news := k.config.Since(a.spokesman.heard(k.name))
	var replaced []config.PolicyDifference
	configured := func(have *ledger.Kind, _ bool) {
		says, isNew := news, untouched(*have)
		*have = k.plugin.defaults(k.name, *have) // somebody may have set it just now
		if k.takesAny() {
			have.Input = k.input()
		}
		if replaced = a.config.PolicyDifferences(says, *have); isNew {
			says, replaced = k.config, nil
		}
		says.Policy(have)
	}
	if policy := k.policy; k.known {
		if configured(&policy, true); reflect.DeepEqual(policy, k.policy) {
			a.spokesman.note(k.name, k.config)
			return nil
		}
	}
	err := k.edit(ctx, l, a.writer(), configured)
	if err != nil {
		return err
	}
	a.spokesman.note(k.name, k.config)
	a.sayReplaced(k.name, replaced)
	return nil
}

// sayReplaced says what the config has put in the place of values that the ledger had.
func (a *app) sayReplaced(kind string, all []config.PolicyDifference) {
	if len(all) == 0 {
		return
	}
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = d.String()
	}
	switch changes := strings.Join(texts, ", "); {
	case a.log != nil:
		a.log.Info("the policy of a kind was set as the config says", "kind", kind, "changes", changes)
	case !a.quiet:
		fmt.Fprintf(a.stderr, "kind %s: set as the config says: %s\n", kind, changes)
	}
}

// warnOfConfig says which of the values that were just set the config has otherwise: they do not stay.
func (a *app) warnOfConfig(have ledger.Kind, isSet func(key string) bool) {
	for _, d := range a.config.PolicyDifferences(a.config.Kind(have.Name), have) {
		if isSet(d.Key) {
			fmt.Fprintf(a.stderr, "warning: the config says otherwise (%s): %s = %s of kind %s. The next command that adds to the kind or works it with this config, and the next start "+
				"of a daemon, set that again: change it there as well\n", d.Origin, d.Key, d.Want, have.Name)
		}
	}
}

// keysOf tells which keys of a policy were given as flags.
func keysOf(f *pflag.FlagSet) func(key string) bool {
	return func(key string) bool { return f.Changed(strings.ReplaceAll(key, "_", "-")) }
}

// policyFindings are the values of policies that the ledger has otherwise than the config says.
func (a *app) policyFindings(kinds []ledger.Kind) (all []ledger.Finding) {
	for _, k := range kinds {
		for _, d := range a.config.PolicyDifferences(a.config.Kind(k.Name), k) {
			all = append(all, ledger.Warning("policy", fmt.Sprintf("%s of kind %s is %s in the ledger, and %s in the config (%s)", d.Key, k.Name, d.Have, d.Want, d.Origin),
				"the ledger's value is in force until a command adds to the kind or works it with this config, or a daemon starts with it",
				fmt.Sprintf("change the config, or the ledger: ledgerd kind set %s --%s", k.Name, strings.ReplaceAll(d.Key, "_", "-")+"="+strings.Trim(d.Want, `"`))))
		}
	}
	return all
}
