package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
)

const completeTime = time.Second // bounds how long a shell waits for the ledger

// completeAll makes shells complete kinds of the ledger, states, plugins of this machine, and the values of choice
// flags, for all commands.
func completeAll(a *app.App, root *cobra.Command) {
	completeChoices(root, root.PersistentFlags())
	plugins := pluginsFor(a, "")
	flags := map[string]wordsFunc{"kind": kindsFor, "state": statesFor, "plugin": plugins}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		completeChoices(cmd, cmd.LocalNonPersistentFlags())
		for name, words := range flags {
			if cmd.LocalNonPersistentFlags().Lookup(name) != nil {
				// The error means that there is no such flag, or that the function was registered before.
				_ = cmd.RegisterFlagCompletionFunc(name, complete(a, words))
			}
		}
		switch _, args, _ := strings.Cut(cmd.Use, " "); {
		case strings.HasPrefix(args, "KIND INPUT…"):
			cmd.ValidArgsFunction = completeInputs(a)
		case strings.HasPrefix(args, "KIND"):
			cmd.ValidArgsFunction = complete(a, kindsFor)
		case cmd.Use == "rm NAME":
			cmd.ValidArgsFunction = complete(a, pluginsFor(a, "data"))
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

// completeChoices makes shells complete the values of choice flags.
func completeChoices(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if c, ok := f.Value.(*app.ChoiceFlag); ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.Of, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// wordsFunc returns the words that may be typed. l is nil if there is no ledger, or it does not answer.
type wordsFunc func(ctx context.Context, l ledgers.Any) []string

// complete offers the words that begin with what is typed. It opens the ledger that the command would use, within
// completeTime and without a word on stderr.
func complete(a *app.App, words wordsFunc) cobra.CompletionFunc {
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
		for _, word := range words(ctx, l) {
			if strings.HasPrefix(word, typed) {
				fits = append(fits, word)
			}
		}
		return fits, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeInputs offers kinds of the ledger and plugins of this machine as the first argument, then files.
func completeInputs(a *app.App) cobra.CompletionFunc {
	plugins := pluginsFor(a, "")
	kinds := complete(a, func(ctx context.Context, l ledgers.Any) []string {
		names := append(kindsFor(ctx, l), plugins(ctx, l)...)
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

// pluginsFor offers the plugins of this machine; unless origin is "", only those of this pluginhost.Place.Origin.
func pluginsFor(a *app.App, origin string) wordsFunc {
	return func(context.Context, ledgers.Any) (names []string) {
		f, err := a.Finder()
		if err != nil {
			return nil
		}
		places, _ := f.List() // as far as folders can be read
		for _, p := range places {
			if origin == "" || p.Origin == origin {
				names = append(names, p.Name)
			}
		}
		return names
	}
}

func kindsFor(ctx context.Context, l ledgers.Any) (names []string) {
	if l == nil {
		return nil
	}
	kinds, _ := l.Kinds(ctx) // none if the ledger fails
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

func statesFor(context.Context, ledgers.Any) (names []string) {
	for _, s := range ledger.States {
		names = append(names, string(s))
	}
	return names
}
