package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

const (
	completeTime = time.Second // that a shell waits for us
	completeMost = 50          // items offered
)

// completeAll adds to commands what shells can offer: kinds, states, items of the ledger, plugins of this
// machine, and the values of flags that have few.
func completeAll(a *app.App, root *cobra.Command) {
	completeChoices(root, root.PersistentFlags())
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		plugins := pluginsFor(a)
		flags := map[string]offer{"kind": kindsFor, "state": statesFor, "scope": scopesFor, "agent": agentsFor,
			"where": termsFor(a), "plugin": plugins}
		completeChoices(cmd, cmd.LocalNonPersistentFlags())
		for name, offer := range flags {
			if f := cmd.LocalNonPersistentFlags().Lookup(name); f != nil {
				if _, list := f.Value.(pflag.SliceValue); list && name != "where" {
					offer = lastOf(offer)
				}
				_ = cmd.RegisterFlagCompletionFunc(name, complete(a, offer)) // it has the flag, and none before
			}
		}
		switch _, args, _ := strings.Cut(cmd.Use, " "); {
		case strings.Contains(args, "ID|KEY"):
			cmd.ValidArgsFunction = complete(a, itemsFor)
		case strings.HasPrefix(args, "KIND INPUT…"):
			cmd.ValidArgsFunction = completeInputs(a)
		case strings.HasPrefix(args, "KIND"):
			cmd.ValidArgsFunction = complete(a, kindsFor)
		case cmd.Use == "rm NAME":
			cmd.ValidArgsFunction = complete(a, addedFor(a))
		case strings.HasPrefix(args, "NAME|PATH"): // files, too
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				names, _ := complete(a, plugins)(cmd, args, typed)
				return names, cobra.ShellCompDirectiveDefault
			}
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(root)
}

// completeChoices offers the values of flags that have few.
func completeChoices(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if c, ok := f.Value.(*app.ChoiceFlag); ok {
			// as above
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.Of, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// offer describes what may be typed; the ledger is nil where there is none, or it does not answer.
type offer func(ctx context.Context, l ledgers.Any, typed string) []string

// lastOf completes the last element of a list with commas.
func lastOf(offer offer) offer {
	return func(ctx context.Context, l ledgers.Any, typed string) (words []string) {
		i := strings.LastIndexByte(typed, ',') + 1
		for _, word := range offer(ctx, l, typed[i:]) {
			words = append(words, typed[:i]+word)
		}
		return words
	}
}

// complete asks the ledger that the command would use, quietly and not for long. Where there is none,
// nothing is offered but what is known without it.
func complete(a *app.App, offer offer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Soft), completeTime)
		defer cancel()
		var l ledgers.Any
		stderr := a.Stderr
		a.Stderr = io.Discard // a shell shows it in the middle of the line
		defer func() { a.Stderr = stderr }()
		if a.SettleEnvironment(cmd.Flags()) == nil && a.Configure(cmd.Flags()) == nil {
			if o, err := a.Reach(ctx, app.ToRead); err == nil {
				defer o.Close()
				l = o.Any
			}
		}
		var fits []string
		for _, word := range offer(ctx, l, typed) {
			if strings.HasPrefix(word, typed) {
				fits = append(fits, word)
			}
		}
		return fits, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeInputs offers kinds, of the ledger and of the plugins here, then files.
func completeInputs(a *app.App) cobra.CompletionFunc {
	plugins := pluginsFor(a)
	kinds := complete(a, func(ctx context.Context, l ledgers.Any, typed string) []string {
		names := append(kindsFor(ctx, l, typed), plugins(ctx, l, typed)...)
		slices.Sort(names)
		return slices.Compact(names)
	})
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return kinds(cmd, args, typed)
	}
}

// pluginsFor are the plugins that a command would find.
func pluginsFor(a *app.App) offer {
	return func(context.Context, ledgers.Any, string) (names []string) {
		f, err := a.Finder()
		if err != nil {
			return nil
		}
		places, _ := f.List() // a shell is offered what there is
		for _, p := range places {
			names = append(names, p.Name)
		}
		return names
	}
}

// addedFor are the plugins that were added here.
func addedFor(a *app.App) offer {
	return func(context.Context, ledgers.Any, string) (names []string) {
		if store, err := a.PluginStore(); err == nil {
			names, _ = store.Names() // a shell is offered what there is
		}
		return names
	}
}

// scopesFor are scopes of what ended last and of what was added first: all of them could not be had in
// the time that a shell waits.
func scopesFor(ctx context.Context, l ledgers.Any, _ string) []string {
	if l == nil {
		return nil
	}
	found := map[string]bool{}
	last, _ := l.Recent(ctx, ledger.Filter{}, bounds.MaxBatch)
	for _, e := range last {
		found[e.Scope] = true
	}
	n := 0
	for it, err := range l.List(ctx, ledger.Filter{}, 0) {
		if n++; err != nil || n > bounds.MaxBatch {
			break
		}
		found[it.Scope] = true
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

func kindsFor(ctx context.Context, l ledgers.Any, _ string) (names []string) {
	if l == nil {
		return nil
	}
	kinds, _ := l.Kinds(ctx) // a shell is offered what there is
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

func statesFor(context.Context, ledgers.Any, string) (names []string) {
	for _, s := range ledger.States {
		names = append(names, string(s))
	}
	return names
}

func agentsFor(ctx context.Context, l ledgers.Any, _ string) (names []string) {
	if l == nil {
		return nil
	}
	agents, _ := l.Agents(ctx)
	for _, g := range agents {
		names = append(names, g.Name)
	}
	return names
}

// itemsFor offers ids, with the keys as their descriptions, of items that ended last.
func itemsFor(ctx context.Context, l ledgers.Any, typed string) (words []string) {
	if l == nil {
		return nil
	}
	if strings.Trim(typed, "0123456789") != "" { // a key
		kinds := kindsFor(ctx, l, "")
		for _, kind := range kinds {
			for it, err := range l.List(ctx, ledger.Filter{Kinds: []string{kind}, Scopes: []string{""}, Prefix: typed}, 0) {
				if err != nil || len(words) == completeMost {
					return words
				}
				words = append(words, it.Key)
			}
		}
		return words
	}
	last, _ := l.Recent(ctx, ledger.Filter{}, completeMost)
	for i := len(last) - 1; i >= 0; i-- {
		words = append(words, cobra.CompletionWithDesc(strconv.FormatInt(last[i].ItemID, 10), last[i].Key))
	}
	return words
}

// termsFor offers the last term of a filter.
func termsFor(a *app.App) offer {
	return func(ctx context.Context, l ledgers.Any, typed string) (words []string) {
		i := strings.LastIndexByte(typed, ' ') + 1
		before, term := typed[:i], typed[i:]
		var values []string
		name, _, _ := strings.Cut(term, ":")
		switch name {
		case "kind":
			values = kindsFor(ctx, l, "")
		case "agent":
			values = agentsFor(ctx, l, "")
		case "scope":
			values = scopesFor(ctx, l, "")
		case "source":
			for _, s := range a.Config.Sources {
				values = append(values, s.Name)
			}
		default:
			for _, o := range filter.Offers { // a name, and once it is typed its values, of which each is about nothing
				if value := o.About == ""; value == strings.Contains(term, ":") {
					words = append(words, before+o.Text)
				}
			}
			return words
		}
		for _, v := range values {
			words = append(words, before+name+":"+v)
		}
		return words
	}
}
