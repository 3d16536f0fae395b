package work

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// apiAddress is the address of the API if neither --listen nor the config has one.
const apiAddress = "127.0.0.1:7374"

func APICommand(a *app.App) *cobra.Command {
	var o apiFlags
	auth := app.ChoiceFlag{Of: []string{"tokens", "none"}}
	cmd := &cobra.Command{
		Use: "api", Short: "Serve the HTTP API of a ledger, without working it", GroupID: app.GroupWork,
		Args: app.Arguments(0, 0),
		Long: `Serves the HTTP API of a ledger, also of an SQLite file, until it is stopped. It works no items, but does the
upkeep of the ledger: items that are due become ready, expired leases are taken back. docs/api.md describes the API. At
/mcp it serves AI agents (docs/agents.md).

Programs need a token of the config, also on this machine. To make one: ledgerd token new NAME.
At SIGHUP it reads the config anew and takes over its tokens, hosts and hidden fields.
With --auth none no token is needed, and every program of this machine may do everything. This needs a loopback
address.`,
		Example: "  ledgerd api --auth none\n  ledgerd api --db postgres://user@host/name --listen 0.0.0.0:7374",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.auth = auth.Value
			return serveAPI(cmd.Context(), a, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "", "`address`, host:port (default: listen of [api] in the config, else "+apiAddress+")")
	f.Var(&auth, "auth", "who may ask: programs with a token, or any program of this machine")
	f.StringVar(&o.prefix, "prefix", "", "`path` before /api/v1, where a proxy serves the API below it: /ledger (default: "+
		"prefix of [api] in the config)")
	return cmd
}

// apiFlags are the flags of api.
type apiFlags struct{ listen, auth, prefix string }

// serveAPI serves the API, and does the upkeep of the ledger, until ctx ends.
func serveAPI(ctx context.Context, a *app.App, flags apiFlags) error {
	a.Log, a.Notices = a.DaemonLogger(), nil
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	address := cmp.Or(flags.listen, a.Config.API.Listen, apiAddress)
	if err := config.CheckPrefix(flags.prefix); err != nil {
		return failure.Usage("bad_flag", "", "--prefix: %v", err)
	}
	guard, err := newGuard(a, address, cmp.Or(flags.auth, a.Config.API.Auth))
	if err != nil {
		return err
	}
	at, err := listenAt(ctx, address)
	if err != nil {
		return err
	}
	defer at.Close()
	db, err := a.Address()
	if err != nil {
		return err
	}
	var l *app.Database
	if err := app.WhenReachable(ctx, a.Log, func() (err error) {
		l, err = a.OpenAt(ctx, db, app.ToWork)
		return err
	}); err != nil {
		return err
	}
	defer l.Close()
	a.LogMigrated(db, l.Migrated)
	h, done, err := openAPI(ctx, a, l, guard, cmp.Or(flags.prefix, a.Config.API.Prefix))
	if err != nil {
		return err
	}
	defer done()
	keeper, err := worker.New(worker.Config{Ledger: l.Ledger, Lends: true, Version: version.String(), Logger: a.Log})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	beside.Go(func() { h.Run(ctx) })
	beside.Go(func() {
		if err := keeper.Run(ctx); err != nil {
			a.Log.Error("the ledger is not kept in order: what is due and what expires waits for another program", "error", err)
		}
	})
	beside.Go(func() { rereadAPI(ctx, a, h, hup) })
	a.Log.Info("listening", "address", at.Addr().String(), "paths", h.Prefix+api.Base, "ledger", db.String())
	return answerAPI(ctx, at, withMCP(h, h))
}

// rereadAPI reads the config again at each SIGHUP, until ctx ends. A config with mistakes changes nothing.
func rereadAPI(ctx context.Context, a *app.App, h *api.API, hup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		c, err := a.LoadConfig()
		if err != nil {
			logKept(a, err, keptOld)
			continue
		}
		changes := config.Diff(a.Config, c)
		c.Retain(a.Config)
		a.Config = c
		takeOver(h, &c.API)
		for _, change := range changes {
			if strings.HasPrefix(change.Key, "api.") {
				a.Log.Info("config changed", "key", change.Key, "needs_restart", !change.Live)
			}
		}
		a.Log.Info("the config was read anew", "config", c.File, "tokens", len(c.API.Tokens))
	}
}
