package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// Find looks up an item as people name it: by id, or by key, as typed, as the path of a file or
// as a URL. kinds and scopes narrow the search.
func Find(ctx context.Context, l ledgers.Any, name string, kinds, scopes []string) (ledger.Item, error) {
	if strings.TrimSpace(name) == "" { // a filter with an empty key matches all
		return ledger.Item{}, failure.Usage("usage", "perhaps a variable of a script is empty",
			"%q names no item: it is blank", name)
	}
	if id, err := strconv.ParseInt(name, 10, 64); err == nil && id > 0 && strconv.FormatInt(id, 10) == name {
		it, err := l.Get(ctx, id)
		fits := func(chosen []string, value string) bool { return len(chosen) == 0 || slices.Contains(chosen, value) }
		if err == nil && fits(kinds, it.Kind) && fits(scopes, it.Scope) || err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return it, err
		}
	}
	for _, key := range keys(name) {
		found, err := byKey(ctx, l, key, kinds, scopes)
		if err != nil {
			return ledger.Item{}, err
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return ledger.Item{}, ambiguous(name, found)
		}
	}
	return ledger.Item{}, failure.New(failure.ExitError, "not_found", fmt.Sprintf("no item %s in this ledger", name),
		"look for it: ledgerd ls --where "+shell.Quote("key~"+filepath.Base(name)))
}

// keys returns the keys that a name may stand for: as typed, then as a URL or else an absolute path.
func keys(name string) []string {
	list := []string{name}
	if u, err := intake.ParseURL(name); err == nil {
		list = append(list, u.Key())
	} else if abs, err := filepath.Abs(name); err == nil {
		list = append(list, abs)
	}
	return slices.Compact(list)
}

// maxFound is how many items of one key are read.
const maxFound = 10

// byKey finds the items of a key. Without scopes it looks in the default scope first, by one step in an index for each
// kind, and in all scopes only if that finds nothing.
func byKey(ctx context.Context, l ledgers.Any, key string, kinds, scopes []string) ([]ledger.Item, error) {
	var found []ledger.Item
	first := scopes
	if len(first) == 0 {
		first = []string{""}
	}
	all, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if len(kinds) > 0 && !slices.Contains(kinds, k.Name) {
			continue
		}
		for _, scope := range first {
			it, err := l.Find(ctx, k.Name, scope, key)
			if err == nil {
				found = append(found, it)
			} else if !errors.Is(err, ledger.ErrNotFound) {
				return nil, err
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	for it, err := range l.List(ctx, ledger.Filter{Key: key, Kinds: kinds, Scopes: scopes}, 0) {
		if err != nil {
			return nil, err
		}
		if found = append(found, it); len(found) == maxFound {
			break
		}
	}
	return found, nil
}

// OpenChosen opens the ledger, and returns the filter that the flags describe. A mistake in the flags is refused before
// the ledger is opened.
func (a *App) OpenChosen(ctx context.Context, f FilterFlags) (*Opened, ledger.Filter, error) {
	chosen, err := f.Parse()
	if err != nil {
		return nil, chosen, err
	}
	l, err := a.Open(ctx, ToRead)
	if err != nil {
		return nil, chosen, err
	}
	if chosen, err = CheckFilter(ctx, l.Any, chosen); err != nil {
		l.Close()
		return nil, chosen, err
	}
	return l, chosen, nil
}

// CheckFilter checks a filter against a ledger. A kind that the ledger does not have is refused: the answer "nothing"
// would hide a mistyped name. Relative paths become keys, see byPath.
func CheckFilter(ctx context.Context, l ledgers.Any, f ledger.Filter) (ledger.Filter, error) {
	if names := kindsOf(f); len(names) > 0 {
		if _, err := CheckKinds(ctx, l, names); err != nil {
			return f, err
		}
	}
	return byPath(ctx, l, f)
}

// kindsOf returns the kinds that a filter names.
func kindsOf(f ledger.Filter) []string {
	names := slices.Clone(f.Kinds)
	for _, also := range f.Also {
		names = append(names, kindsOf(also)...)
	}
	return names
}

// byPath makes a key of a filter an absolute path if a file of that path exists and no item has the key as typed.
func byPath(ctx context.Context, l ledgers.Any, f ledger.Filter) (ledger.Filter, error) {
	f.Also = slices.Clone(f.Also)
	for i := range f.Also {
		var err error
		if f.Also[i], err = byPath(ctx, l, f.Also[i]); err != nil {
			return f, err
		}
	}
	if f.Key == "" || filepath.IsAbs(f.Key) {
		return f, nil
	}
	if _, err := os.Stat(f.Key); err != nil {
		return f, nil
	}
	for _, err := range l.List(ctx, ledger.Filter{Key: f.Key}, 0) { // the first item is enough: the key is meant as typed
		return f, err
	}
	abs, err := filepath.Abs(f.Key)
	f.Key = abs
	return f, err
}

// ambiguous asks which of several items of a key is meant.
func ambiguous(name string, found []ledger.Item) error {
	var lines []string
	for _, it := range found {
		text := fmt.Sprintf("%d is of kind %s", it.ID, it.Kind)
		if it.Scope != "" {
			text += " in scope " + report.Safe(it.Scope)
		}
		lines = append(lines, text)
	}
	return failure.Usage("ambiguous", "name the id, or add --kind or --scope\n"+strings.Join(lines, "\n"),
		"several items are named %s", name)
}

// ShortKey returns a function that shortens a key: an absolute path below the working directory becomes relative.
func ShortKey() func(key string) string {
	cwd, err := os.Getwd()
	return func(key string) string {
		if err == nil && filepath.IsAbs(key) {
			if rel, err := filepath.Rel(cwd, key); err == nil && filepath.IsLocal(rel) {
				return rel
			}
		}
		return key
	}
}
