package main

import (
	"context"
	"errors"
	"fmt"

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
		return w, nil
	}
	w.Next += a.missingSettings(ctx, k)
	return w, nil
}
