package ui

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Embedded has the options of Handler.
type Embedded struct {
	// Name of the ledger, shown on each page.
	Name string
	// Prefix is the path below which the pages are, such as "/ledger"; "" is the root. Handler panics if CheckPrefix
	// refuses it.
	Prefix string
	// Hosts are the names under which the program is reached, besides those of this machine (localhost). Requests for
	// another name are refused.
	Hosts []string
	// Verdicts are the buttons of a kind that people work, beside done and failed; nil means none.
	Verdicts func(kind string) []string
	// Trace is the URL of a trace by its id, "" for none; nil means that the pages have only ids.
	Trace func(id string) string
	// Log gets errors and warnings; nil means none.
	Log *slog.Logger
}

// Handler shows a ledger within another Go program. The program may also work items. Handler asks for no login:
// everybody who reaches it may act, under the name anyone. So the program must put it behind its own login. Acts on
// many items are carried out until ctx ends.
func Handler(ctx context.Context, l *ledger.Ledger, e Embedded) http.Handler {
	e.Log = cmp.Or(e.Log, slog.New(slog.DiscardHandler))
	guard := access.NewGuard("localhost:0", e.Hosts, nil, true)
	h := api.New(api.Config{Ledger: l, Guard: guard, Log: e.Log, Version: answer.NewVersion(wire.Version)})
	go h.Run(ctx)
	return New(Options{API: h, Admit: guard.AdmitPage, Name: e.Name, Prefix: e.Prefix, Verdicts: e.Verdicts,
		Trace: e.Trace})
}
