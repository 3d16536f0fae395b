package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// policy are the flags of kind set.
type policy struct {
	plugin, input                 string
	onLost                        app.ChoiceFlag
	maxFailures, maxCrashes, lost int
	base, limit, timeout          app.DurationFlag
	keep                          app.RetentionFlag
	running, perKey, burst        int
	rate, ratePerKey              app.RateFlag
	set, unset                    []string
}

func kindSetCommand(a *app.App) *cobra.Command {
	p := policy{onLost: app.ChoiceFlag{Of: []string{string(ledger.OnLostRepeat), string(ledger.OnLostDoubt)}}}
	cmd := &cobra.Command{
		Use: "set KIND", Short: "Set how a kind is treated; the way in which a kind worked by people comes to be",
		Args: app.Arguments(1, 1),
		Long: `Sets the given values and leaves the rest. If nothing was set for the kind before, the rest comes from its plugin, if
the plugin is on this machine. The policy is kept in the ledger, so it holds on all machines. Prints the policy
as kind ls does. If the config has another value, the next command that reads the config sets that value again;
kind set warns of this.

--set gives fields of the payload to new items, if run and add do not give them. Fields that are given to run or add do
not change it. --unset removes a field from the kind.

A limit holds for all agents together. Items that people have claimed count as leased, too. A limit that is set or
lowered takes no lease back. In any time at most burst + time × rate items begin. For rates above
10/s set --burst to a tenth of the rate.`,
		Example: "  ledgerd kind set urlcheck --max-running-per-shard-key 2 --rate 50/s --burst 10\n  ledgerd kind set " +
			"article --input url --max-failures 3\n  ledgerd kind set mail --on-lost doubt --keep 90d\n  ledgerd kind set " +
			"people --set table=people",
		RunE: func(cmd *cobra.Command, args []string) error {
			return kindSet(cmd.Context(), a, cmd.Flags(), args[0], p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.plugin, "plugin", "", "`plugin` that works it; \"\" is the one of the same name, or people")
	f.StringVar(&p.input, "input", "", "what INPUT is: `file|url|line`")
	f.Var(&p.onLost, "on-lost",
		"what an attempt without a report means: it is repeated, or in doubt until a person decides")
	f.IntVar(&p.maxFailures, "max-failures", 0, "`number` of failed attempts after which an item is dead (0: 5)")
	f.IntVar(&p.maxCrashes, "max-crashes", 0, "`number` of crashes of its process after which an item is dead (0: 3)")
	f.IntVar(&p.lost, "max-lost", 0, "`number` of expired leases in a row after which an item is dead (0: 10)")
	f.Var(&p.base, "backoff-base", "before attempt n+1 an item waits for a random time up to base·2ⁿ (0: 1s) …")
	f.Var(&p.limit, "backoff-cap", "… and at most for this (0: 10m, or --backoff-base if it is longer)")
	f.Var(&p.timeout, "timeout", "of one attempt (0: none)")
	f.Var(&p.keep, "keep", "how long payload, output and attempts of items stay that are done or cancelled (0: 30d), "+
		"or forever")
	f.IntVar(&p.running, "max-running", 0, "`number` of items that are leased at a time, by all together (0: no limit)")
	f.IntVar(&p.perKey, "max-running-per-shard-key", 0, "the same `number` for each shard key: of a URL its host")
	f.Var(&p.rate, "rate", "items that are begun in a time, by all together: 100/s, 30/m, 5/10s (0: no limit)")
	f.Var(&p.ratePerKey, "rate-per-shard-key", "the same for each shard key")
	f.IntVar(&p.burst, "burst", 0, "`number` of items that may be begun at once after a pause, for both rates (0: 1)")
	f.StringArrayVar(&p.set, "set", nil, "`NAME=VALUE` (or NAME:=JSON) of the payload of new items, for run and add "+
		"that do not give it; may be repeated")
	f.StringArrayVar(&p.unset, "unset", nil, "`field` of the payload that the kind is to forget; may be repeated")
	return cmd
}

func kindSet(ctx context.Context, a *app.App, f *pflag.FlagSet, name string, p policy) error {
	if err := kinds.CheckKind(name); err != nil {
		return err
	}
	l, err := a.Open(ctx, app.ToWork)
	if errors.Is(err, ledger.ErrNoLedger) {
		var edit func(*ledger.Kind, bool)
		if edit, err = p.edit(ctx, a, f, nil, name); err != nil {
			return err
		}
		k := ledger.Kind{Name: name}
		edit(&k, false)
		if err = k.Check(); err != nil {
			return app.FieldError(err, "invalid", nil)
		}
		l, err = a.Create(ctx)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	edit, err := p.edit(ctx, a, f, l.Any, name)
	if err != nil {
		return err
	}
	stored, err := l.EditKind(ctx, app.Actor(), name, edit)
	if err != nil {
		return app.FieldError(err, "invalid", nil)
	}
	warnOfConfig(a, stored, keysOf(f))
	printer := a.Printer()
	if printer.Format == report.JSON {
		return printer.Object(answer.NewKind(stored))
	}
	_, err = report.List(printer, report.Each([]answer.Kind{answer.NewKind(stored)}), "kind", "plugin", "input", "on_lost",
		"max_failures", "limits", "paused", "definition")
	return err
}

// edit returns a function that sets the given values of a kind. l is nil if there is no ledger yet.
func (p policy) edit(ctx context.Context, a *app.App, f *pflag.FlagSet, l ledgers.Any, name string) (func(*ledger.Kind,
	bool), error) {
	var have ledger.Kind
	err := ledger.ErrNotFound
	if l != nil {
		have, err = l.Kind(ctx, name)
	}
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	if err != nil && p.plugin == "" && p.input == "" {
		if err := refuseMistyped(ctx, a, l, name); err != nil {
			return nil, err
		}
	}
	defaults, err := a.SettingDefaults(ctx, have, name, p.plugin, p.set, p.unset)
	if err != nil {
		return nil, err
	}
	var worker *kinds.Plugin
	if kinds.Untouched(have) {
		worker, err = a.FindPlugin(ctx, cmp.Or(p.plugin, a.Config.PluginOf(name), name))
		if err != nil && !kinds.IsNoPlugin(err) {
			return nil, err
		}
	}
	return func(k *ledger.Kind, _ bool) {
		*k = worker.Defaults(name, *k)
		set := map[string]func(){
			"plugin":       func() { k.Plugin = p.plugin },
			"input":        func() { k.Input.Type = p.input },
			"on-lost":      func() { k.OnLost = ledger.OnLost(p.onLost.Value) },
			"max-failures": func() { k.MaxFailures = p.maxFailures },
			"max-crashes":  func() { k.MaxCrashes = p.maxCrashes },
			"max-lost":     func() { k.MaxLost = p.lost },
			"backoff-base": func() { k.Backoff.Base = p.base.Duration },
			"backoff-cap":  func() { k.Backoff.Cap = p.limit.Duration },
			"timeout":      func() { k.Timeout = p.timeout.Duration },
			"keep":         func() { k.Keep = p.keep.Duration },
			"max-running":  func() { k.Limits.MaxRunning = p.running },
			"rate":         func() { k.Limits.Rate = p.rate.Rate },
			"burst":        func() { k.Limits.Burst = p.burst },
			"set":          func() { k.Defaults = defaults(k.Defaults) },
			"unset":        func() { k.Defaults = defaults(k.Defaults) },

			"max-running-per-shard-key": func() { k.Limits.MaxRunningPerShardKey = p.perKey },
			"rate-per-shard-key":        func() { k.Limits.RatePerShardKey = p.ratePerKey.Rate },
		}
		f.Visit(func(fl *pflag.Flag) {
			if do := set[fl.Name]; do != nil {
				do()
			}
		})
	}, nil
}

// refuseMistyped refuses to make a kind whose name is written nearly like a known kind or plugin, and that neither the
// config nor a plugin here has.
func refuseMistyped(ctx context.Context, a *app.App, l ledgers.Any, name string) error {
	if _, err := a.Place(name); a.Config.Kinds[name] != nil || !kinds.IsNoPlugin(err) {
		return nil
	}
	near, err := a.Near(ctx, l, name)
	if part := strings.Contains(near, name) && len(near) > len(name)+1; err != nil || near == "" || part {
		return err // a part of a longer name is no typing error
	}
	return failure.Usage("unknown_kind", fmt.Sprintf("did you mean %s?   a new kind for people or scripts: ledgerd kind set %s "+
		"--input line", near, name), "no kind %q", name)
}

// keysOf returns a function that reports whether a key of the policy was given as a flag.
func keysOf(f *pflag.FlagSet) func(key string) bool {
	return func(key string) bool { return f.Changed(strings.ReplaceAll(key, "_", "-")) }
}
