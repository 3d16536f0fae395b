package main

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

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

const (
	completeTime = time.Second // that a shell waits for us
	completeMost = 50          // items offered
)

// completeAll adds to commands what shells can offer: kinds, states, items of the ledger, plugins of this
// machine, and the values of flags that have few.
func (a *app) completeAll(root *cobra.Command) {
	completeChoices(root, root.PersistentFlags())
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		plugins := a.pluginsFor(cmd)
		flags := map[string]offer{"kind": kindsFor, "state": statesFor, "scope": scopesFor, "agent": agentsFor, "where": a.termsFor, "plugin": plugins}
		completeChoices(cmd, cmd.LocalNonPersistentFlags())
		for name, offer := range flags {
			if f := cmd.LocalNonPersistentFlags().Lookup(name); f != nil {
				if _, list := f.Value.(pflag.SliceValue); list && name != "where" {
					offer = lastOf(offer)
				}
				_ = cmd.RegisterFlagCompletionFunc(name, a.complete(offer)) // it has the flag, and none before
			}
		}
		switch _, args, _ := strings.Cut(cmd.Use, " "); {
		case strings.Contains(args, "ID|KEY"):
			cmd.ValidArgsFunction = a.complete(itemsFor)
		case strings.HasPrefix(args, "KIND INPUT…"):
			cmd.ValidArgsFunction = a.completeInputs
		case strings.HasPrefix(args, "KIND"):
			cmd.ValidArgsFunction = a.complete(kindsFor)
		case strings.HasPrefix(args, "NAME[@VERSION]"):
			cmd.ValidArgsFunction = a.complete(a.addedFor)
		case strings.HasPrefix(args, "NAME|PATH"): // files, too
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				names, _ := a.complete(plugins)(cmd, args, typed)
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
		if c, ok := f.Value.(*choice); ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.of, cobra.ShellCompDirectiveNoFileComp)) // as above
		}
	})
}

// offer says what may be typed; the ledger is nil where there is none, or it does not answer.
type offer func(ctx context.Context, l *ledger.Ledger, typed string) []string

// lastOf completes the last element of a list with commas.
func lastOf(offer offer) offer {
	return func(ctx context.Context, l *ledger.Ledger, typed string) (words []string) {
		i := strings.LastIndexByte(typed, ',') + 1
		for _, word := range offer(ctx, l, typed[i:]) {
			words = append(words, typed[:i]+word)
		}
		return words
	}
}

// complete asks the ledger that the command would use, quietly and not for long. Where there is none,
// nothing is offered but what is known without it.
func (a *app) complete(offer offer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.soft), completeTime)
		defer cancel()
		var l *ledger.Ledger
		stderr := a.stderr
		a.stderr = io.Discard // a shell shows it in the middle of the line
		defer func() { a.stderr = stderr }()
		if a.settleEnvironment(cmd.Flags()) == nil && a.configure(cmd.Flags()) == nil {
			if at, err := a.address(); err == nil {
				if o, err := a.openAt(ctx, at, false); err == nil {
					defer o.Close()
					l = o.Ledger
				}
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
func (a *app) completeInputs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.complete(func(ctx context.Context, l *ledger.Ledger, typed string) []string {
		names := append(kindsFor(ctx, l, typed), a.pluginsFor(cmd)(ctx, l, typed)...)
		slices.Sort(names)
		return slices.Compact(names)
	})(cmd, args, typed)
}

// pluginsFor are the plugins that a command would find.
func (a *app) pluginsFor(cmd *cobra.Command) offer {
	return func(context.Context, *ledger.Ledger, string) (names []string) {
		dirs := pluginDirs{list: a.config.PluginDir}
		if typed, err := cmd.Flags().GetStringSlice("plugin-dir"); err == nil { // also from the config
			dirs.list = typed
		}
		f, err := a.finder(dirs)
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

// addedFor are the plugins that were added here; behind @ the versions of one that are not current.
func (a *app) addedFor(_ context.Context, _ *ledger.Ledger, typed string) (words []string) {
	store, err := a.plugins()
	if err != nil {
		return nil
	}
	names, _ := store.Names() // a shell is offered what there is
	name, _, single := strings.Cut(typed, "@")
	if !single {
		return names
	}
	versions, _ := store.Versions(name)
	for _, v := range versions {
		if !v.Current && slices.Contains(names, name) {
			words = append(words, name+"@"+report.Safe(v.Version), name+"@"+v.SHA256[:12])
		}
	}
	return words
}

// scopesFor are scopes of what ended last and of what was added first: all of them could not be had in
// the time that a shell waits.
func scopesFor(ctx context.Context, l *ledger.Ledger, _ string) []string {
	if l == nil {
		return nil
	}
	found := map[string]bool{}
	last, _ := l.Recent(ctx, ledger.Filter{}, ledger.MaxBatch)
	for _, e := range last {
		found[e.Scope] = true
	}
	n := 0
	for it, err := range l.List(ctx, ledger.Filter{}, 0) {
		if n++; err != nil || n > ledger.MaxBatch {
			break
		}
		found[it.Scope] = true
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

func kindsFor(ctx context.Context, l *ledger.Ledger, _ string) (names []string) {
	if l == nil {
		return nil
	}
	kinds, _ := l.Kinds(ctx) // a shell is offered what there is
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

func statesFor(context.Context, *ledger.Ledger, string) (names []string) {
	for _, s := range ledger.States {
		names = append(names, string(s))
	}
	return names
}

func agentsFor(ctx context.Context, l *ledger.Ledger, _ string) (names []string) {
	if l == nil {
		return nil
	}
	agents, _ := l.Agents(ctx)
	for _, g := range agents {
		names = append(names, g.Name)
	}
	return names
}

// itemsFor offers ids, with the keys as what the shell says of them, of what ended last.
func itemsFor(ctx context.Context, l *ledger.Ledger, typed string) (words []string) {
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
func (a *app) termsFor(ctx context.Context, l *ledger.Ledger, typed string) (words []string) {
	i := strings.LastIndexByte(typed, ' ') + 1
	before, term := typed[:i], typed[i:]
	var values []string
	name, _, _ := strings.Cut(term, ":")
	switch name {
	case "kind":
		values = kindsFor(ctx, l, "")
	case "state":
		values = statesFor(ctx, l, "")
	case "agent":
		values = agentsFor(ctx, l, "")
	case "scope":
		values = scopesFor(ctx, l, "")
	case "source":
		for _, s := range a.config.Sources {
			values = append(values, s.Name)
		}
	default:
		for _, n := range ledger.FilterNames {
			words = append(words, before+n)
		}
		return words
	}
	for _, v := range values {
		words = append(words, before+name+":"+v)
	}
	return words
}
