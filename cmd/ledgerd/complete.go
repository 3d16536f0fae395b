package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	completeTime = time.Second // that a shell waits for us
	completeMost = 50          // items offered
)

// completeAll adds to commands what shells can offer: kinds, states, items of the ledger.
func (a *app) completeAll(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		for name, offer := range map[string]func(context.Context, *ledger.Ledger, string) []string{"kind": kindsFor, "state": statesFor, "agent": agentsFor, "where": termsFor} {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, a.complete(offer)) // it has the flag, and none before
			}
		}
		switch _, args, _ := strings.Cut(cmd.Use, " "); {
		case strings.Contains(args, "ID|KEY"):
			cmd.ValidArgsFunction = a.complete(itemsFor)
		case strings.HasPrefix(args, "KIND…"):
			cmd.ValidArgsFunction = a.complete(kindsFor)
		}
		if cmd.Name() == "kind" {
			for _, below := range cmd.Commands() {
				if below.Name() == "set" {
					below.ValidArgsFunction = a.complete(kindsFor)
				}
			}
		}
	}
}

// complete asks the ledger, quietly and not for long. Where there is none, nothing is offered but
// what is known without it.
func (a *app) complete(offer func(context.Context, *ledger.Ledger, string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.soft), completeTime)
		defer cancel()
		var l *ledger.Ledger
		if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err == nil {
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
func termsFor(ctx context.Context, l *ledger.Ledger, typed string) (words []string) {
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
