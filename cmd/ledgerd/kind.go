package main

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// kindRow is the policy of a kind; times are numbers of seconds, defaults are filled in.
type kindRow struct {
	Kind        string   `json:"kind"`
	Plugin      string   `json:"plugin"`
	Input       string   `json:"input"`
	InputField  string   `json:"input_field"`
	Match       []string `json:"match"`
	OnLost      string   `json:"on_lost"`
	MaxFailures int      `json:"max_failures"`
	MaxCrashes  int      `json:"max_crashes"`
	MaxLost     int      `json:"max_lost"`
	BackoffBase float64  `json:"backoff_base_s"`
	BackoffCap  float64  `json:"backoff_cap_s"`
	Timeout     float64  `json:"timeout_s"`
	Keep        *float64 `json:"keep_s"`
	MaxRunning  int      `json:"max_running"`
	PerKey      int      `json:"max_running_per_shard_key"`
	Rate        string   `json:"rate"`
	RatePerKey  string   `json:"rate_per_shard_key"`
	Burst       int      `json:"burst"`
	Limits      string   `json:"limits"`
	Paused      bool     `json:"paused"`
	Definition  string   `json:"definition"`
}

func newKindRow(k ledger.Kind) kindRow {
	or := func(v, def int) int {
		if v == 0 {
			return def
		}
		return v
	}
	row := kindRow{Kind: k.Name, Plugin: k.Plugin, Input: k.Input.Type, InputField: k.Input.Field, Match: k.Input.Match, OnLost: string(k.OnLost),
		MaxFailures: or(k.MaxFailures, ledger.DefaultMaxFailures), MaxCrashes: or(k.MaxCrashes, ledger.DefaultMaxCrashes), MaxLost: or(k.MaxLost, ledger.DefaultMaxLost),
		BackoffBase: k.Backoff.Base.Seconds(), BackoffCap: k.Backoff.Cap.Seconds(), Timeout: k.Timeout.Seconds(),
		MaxRunning: k.Limits.MaxRunning, PerKey: k.Limits.MaxRunningPerShardKey, Rate: k.Limits.Rate.String(), RatePerKey: k.Limits.RatePerShardKey.String(), Burst: k.Limits.Burst,
		Paused: k.Paused, Definition: k.Definition}
	if k.Limits.Any() {
		row.Limits = k.Limits.String()
	}
	if row.Match == nil {
		row.Match = []string{}
	}
	if row.OnLost == "" {
		row.OnLost = string(ledger.OnLostRepeat)
	}
	if row.Input == "" {
		row.Input = "line"
	}
	if k.Backoff.Base == 0 {
		row.BackoffBase = ledger.DefaultBackoffBase.Seconds()
	}
	if k.Backoff.Cap == 0 {
		row.BackoffCap = ledger.DefaultBackoffCap.Seconds()
	}
	if k.Keep != ledger.KeepForever {
		keep := cmp.Or(k.Keep, ledger.DefaultKeep).Seconds()
		row.Keep = &keep
	}
	return row
}

func (a *app) kindCommand() *cobra.Command {
	return group(groupSetUp, "kind", "List kinds of work, show one, set how each is treated, pause and resume them", a.kindLsCommand(), a.kindShowCommand(), a.kindSetCommand(),
		a.kindPauseCommand(), a.kindResumeCommand())
}

func (a *app) kindLsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the kinds of this ledger", Args: arguments(0, 0),
		Long: `Lists kinds and how they are treated. Fields: kind, plugin, input, input_field, match, on_lost,
max_failures, max_crashes, max_lost, backoff_base_s, backoff_cap_s, timeout_s, keep_s (null: for ever), paused, definition,
and the limits, of which 0 is none: max_running, max_running_per_shard_key, rate, rate_per_shard_key, burst,
and all of them in words: limits.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			kinds, err := l.Kinds(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]kindRow, len(kinds))
			for i, k := range kinds {
				rows[i] = newKindRow(k)
			}
			n, err := report.List(a.printer(), each(rows), "kind", "plugin", "input", "on_lost", "max_failures", "limits", "paused", "definition")
			if err == nil && n == 0 && a.errorOnEmpty {
				return status(exitEmpty)
			}
			return err
		},
	}
}

// policy are the flags of kind set.
type policy struct {
	plugin, input, field          string
	match                         []string
	onLost                        choice
	maxFailures, maxCrashes, lost int
	base, limit, timeout          duration
	keep                          retention
	running, perKey, burst        int
	rate, ratePerKey              rateFlag
	paused                        bool
	set, unset                    []string
}

func (a *app) kindSetCommand() *cobra.Command {
	p := policy{onLost: choice{of: []string{string(ledger.OnLostRepeat), string(ledger.OnLostDoubt)}}}
	cmd := &cobra.Command{
		Use: "set KIND", Short: "Set how a kind is treated; the way in which a kind worked by people comes to be", Args: arguments(1, 1),
		Long: `Sets what is given and leaves the rest. Of a kind of which nothing was set before, the rest is as its
plugin wants it, if that is here. The policy is kept in the ledger, so all who work it treat an item
alike. Prints the policy as kind ls does. What the config says otherwise is set again by what reads the
config next; kind set warns of it.

--set gives fields of the payload that run and add put into new items where they do not say them; what
these commands are given themselves does not change it. --unset has the kind forget a field.

The limits hold for all who work the kind together. Leased is what somebody has claimed, persons too.
A limit that is set or lowered takes nothing back: what is leased stays so. Items of a kind with
limits cannot need resources as well. Bound of a rate: in any time, burst + time × rate items are
begun at most; one of more than some ten items a second needs a burst of a tenth of it.`,
		Example: "  ledgerd kind set urlcheck --max-running-per-shard-key 2 --rate 50/s --burst 10\n  ledgerd kind set article --input url --max-failures 3\n  ledgerd kind set mail --on-lost doubt --keep 90d\n  ledgerd kind set people --set table=people",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.kindSet(cmd.Context(), cmd.Flags(), args[0], p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.plugin, "plugin", "", "`plugin` that works it; \"\" is the one of the same name, or people")
	f.StringVar(&p.input, "input", "", "what INPUT is: `file|url|line`")
	f.StringVar(&p.field, "input-field", "", "`field` of the payload that takes INPUT")
	f.StringSliceVar(&p.match, "match", nil, "which files of a folder are taken: `globs` over names")
	f.Var(&p.onLost, "on-lost", "what an attempt without a report means: it is repeated, or in doubt until a person decides")
	f.IntVar(&p.maxFailures, "max-failures", 0, "`number` of failed attempts after which an item is dead (0: 5)")
	f.IntVar(&p.maxCrashes, "max-crashes", 0, "`number` of crashes of its process after which an item is dead (0: 3)")
	f.IntVar(&p.lost, "max-lost", 0, "`number` of expired leases in a row after which an item is dead (0: 10)")
	f.Var(&p.base, "backoff-base", "before attempt n+1 an item waits for a random time up to base·2ⁿ (0: 1s) …")
	f.Var(&p.limit, "backoff-cap", "… and at most for this (0: 10m)")
	f.Var(&p.timeout, "timeout", "of one attempt (0: none)")
	f.Var(&p.keep, "keep", "how long payload, output and attempts of items stay that are done or cancelled (0: 30d), or forever")
	f.IntVar(&p.running, "max-running", 0, "`number` of items that are leased at a time, by all together (0: no limit)")
	f.IntVar(&p.perKey, "max-running-per-shard-key", 0, "the same `number` for each shard key: of a URL its host")
	f.Var(&p.rate, "rate", "items that are begun in a time, by all together: 100/s, 30/m, 5/10s (0: no limit)")
	f.Var(&p.ratePerKey, "rate-per-shard-key", "the same for each shard key")
	f.IntVar(&p.burst, "burst", 0, "`number` of items that may be begun at once after a pause, for both rates (0: 1)")
	f.BoolVar(&p.paused, "paused", false, "whether it is not to be worked")
	f.StringArrayVar(&p.set, "set", nil, "`NAME=VALUE` (or NAME:=JSON) of the payload of new items, for run and add that do not say it; repeated")
	f.StringArrayVar(&p.unset, "unset", nil, "`field` of the payload that the kind is to forget; repeated")
	return cmd
}

func (a *app) kindSet(ctx context.Context, f *pflag.FlagSet, name string, p policy) error {
	if err := checkKind(name); err != nil {
		return err
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	have, err := l.Kind(ctx, name)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	defaults, err := a.settingDefaults(ctx, have, name, p)
	if err != nil {
		return err
	}
	var worker *plugin
	if untouched(have) {
		worker, err = a.findPlugin(ctx, cmp.Or(p.plugin, a.config.PluginOf(name), name), pluginDirs{list: a.config.PluginDir})
		if err != nil && !isNoPlugin(err) {
			return err
		}
	}
	stored, err := l.EditKind(ctx, actor(), name, func(k *ledger.Kind, _ bool) {
		*k = worker.defaults(name, *k)
		set := map[string]func(){
			"plugin":       func() { k.Plugin = p.plugin },
			"input":        func() { k.Input.Type = p.input },
			"input-field":  func() { k.Input.Field = p.field },
			"match":        func() { k.Input.Match = p.match },
			"on-lost":      func() { k.OnLost = ledger.OnLost(p.onLost.value) },
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
			"paused":       func() { k.Paused = p.paused },
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
	})
	if err != nil {
		return policyError(err)
	}
	a.warnOfConfig(stored, keysOf(f))
	printer := a.printer()
	if printer.Format == report.JSON {
		return printer.Object(newKindRow(stored))
	}
	_, err = report.List(printer, each([]kindRow{newKindRow(stored)}), "kind", "plugin", "input", "on_lost", "max_failures", "limits", "paused", "definition")
	return err
}

// policyError names the flag instead of the field.
func policyError(err error) error {
	if bad, ok := err.(*ledger.InvalidError); ok {
		return usage("invalid", "", "--%s: %s", strings.ReplaceAll(bad.Field, "_", "-"), bad.Reason)
	}
	return err
}
