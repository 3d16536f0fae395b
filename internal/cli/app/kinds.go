package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// FieldError makes an error for people of a *ledger.InvalidError. names has what a command calls a field; without a
// name there, the field is the flag with its own name.
func FieldError(err error, code string, names map[string]string) error {
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok && bad.Field != "" {
		name := cmp.Or(names[bad.Field], "--"+strings.ReplaceAll(bad.Field, "_", "-"))
		return failure.Usage(code, bad.Hint, "%s: %s", name, bad.Reason)
	}
	return err
}

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

// RememberWith makes commands of this process keep --with for the next command, for each ledger and kind.
func (a *App) RememberWith() error {
	dir, err := a.DataDir()
	if err != nil {
		return err
	}
	ledger := redact.Text(a.Db)
	if !dburl.IsRemote(a.Db) {
		at, err := a.Address()
		if err != nil {
			return err
		}
		ledger = at.String()
	}
	a.Memory = &kinds.Memory{Dir: filepath.Join(dir, "settings"), Ledger: ledger}
	return nil
}
