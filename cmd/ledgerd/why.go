package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

type whyRow struct {
	ID    int64        `json:"id"`
	State ledger.State `json:"state"`
	Code  string       `json:"code"`
	Text  string       `json:"text"`
	Since report.Time  `json:"since"`
	Until report.Time  `json:"until"`
	Next  string       `json:"next"`
}

func newWhyRow(id int64, w ledger.Reason) whyRow {
	return whyRow{id, w.State, w.Code, w.Text, report.Time(w.Since), report.Time(w.Until), w.Next}
}

// items are the flags that say which item a key means where several have it.
type items struct{ kinds, scopes []string }

func (i *items) define(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&i.kinds, "kind", nil, "of these `kinds`, where a key has items of several")
	cmd.Flags().StringSliceVar(&i.scopes, "scope", nil, "of these `scopes`")
}

func (a *app) whyCommand() *cobra.Command {
	var which items
	cmd := &cobra.Command{
		Use: "why ID|KEY", Short: "Say in one sentence why an item is where it is, and what would help", GroupID: groupLook, Args: arguments(1, 1),
		Long: `Says what an item waits for, who has it, or what became of it; then, after "next:", the command that
would help, if one would.

With -o json: {"id","state","code","text","since","until","next"}. Codes: leased (somebody works on
it), due (later), backoff (it failed and is tried again), next (it recurs), paused (its kind is),
resource (another item holds what it needs), max_running, rate (limits of its kind), shard (nobody
works its part), nobody (works its kind), no_plugin (nobody does, and the plugin is not here), breaker (its plugin
crashes again and again wherever its kind is worked, so nothing is given to it for a while), behind
(others come first), dead, doubt, done, cancelled.`,
		Example: "  ledgerd why inbox/march/leads-03.csv\n  ledgerd why 17 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			it, err := find(cmd.Context(), l.Ledger, args[0], which.kinds, which.scopes)
			if err != nil {
				return err
			}
			w, err := a.reason(cmd.Context(), l.Ledger, it)
			if err != nil {
				return err
			}
			text := report.Safe(w.Text)
			if w.Next != "" {
				text += "\nnext: " + w.Next
			}
			return one(a, newWhyRow(it.ID, w), text)
		},
	}
	which.define(cmd)
	return cmd
}

// reason is why an item is where it is, with what the ledger cannot know: whether this machine has
// the plugin.
func (a *app) reason(ctx context.Context, l *ledger.Ledger, it ledger.Item) (ledger.Reason, error) {
	w, err := l.Why(ctx, it.ID)
	if err != nil || w.Code != "nobody" {
		return w, err
	}
	k, err := l.Kind(ctx, it.Kind)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return w, err
	}
	if k.Plugin == "" && k.Definition == "" { // worked by people
		return w, nil
	}
	name := k.Plugin
	if name == "" {
		name = it.Kind
	}
	if _, err := a.place(name, pluginDirs{}); isNoPlugin(err) {
		w.Code, w.Next = noPluginCode, "ledgerd plugin ls"
		w.Text = fmt.Sprintf("It is ready, but nobody works kind %s now, and its plugin %s is not on this machine.", it.Kind, name)
	}
	return w, nil
}
