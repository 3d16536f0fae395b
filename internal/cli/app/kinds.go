package app

import (
	"context"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// CheckKinds refuses names that are no kinds of the ledger. It returns all kinds by name.
func CheckKinds(ctx context.Context, l ledgers.Any, names []string) (map[string]ledger.Kind, error) {
	all, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]ledger.Kind{}
	for _, k := range all {
		known[k.Name] = k
	}
	for _, name := range names {
		if _, there := known[name]; !there {
			hint := "all kinds: ledgerd kind ls"
			if near := settings.Suggest(name, slices.Sorted(maps.Keys(known))); near != "" {
				hint = "did you mean " + near + "?   " + hint
			}
			return nil, failure.Usage("unknown_kind", hint, "no kind %q in this ledger", name)
		}
	}
	return known, nil
}
