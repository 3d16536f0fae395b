package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/hostcheck"
	"github.com/ledgerd/ledgerd/internal/mcp"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// openAPI makes the API of an open ledger, with connections of its own for reads. done closes these.
func openAPI(ctx context.Context, a *app.App, l *app.Database, guard *access.Guard, prefix string) (h *api.API,
	done func(), err error) {
	reading, err := l.Address.Open(ctx, dburl.Options{ReadOnly: true, URL: a.URLReader(l.Address)})
	if err != nil {
		return nil, nil, a.ExplainOpen(l.Address, err)
	}
	reader := ledger.New(reading, ledger.Options{Logger: a.Log, Environment: a.Config.Environment})
	if _, err := reader.Kinds(ctx); err != nil { // such as a ledger of another environment
		return nil, nil, errors.Join(err, reading.Close())
	}
	h = api.New(api.Config{Ledger: l.Ledger, Reader: reader, Guard: guard, Prefix: prefix, Log: a.Log,
		Version: answer.NewVersion(wire.Version), Grace: bounds.DefaultTTL / 3, Environment: a.Config.Environment,
		TracerProvider: a.TracerProvider(ctx)})
	h.Hide(a.Config.API.Hide)
	return h, func() { _ = reading.Close() }, nil
}

// takeOver makes the API use the hosts, tokens and hidden fields of a config.
func takeOver(h *api.API, c *config.API) {
	h.Guard.Set(c.Hosts, c.Grants())
	h.Hide(c.Hide)
}

// newGuard makes the guard of an API or of the pages, from the tokens of the config. auth "none" needs no token, and
// goes with a loopback address only.
func newGuard(a *app.App, address, auth string) (*access.Guard, error) {
	tokens, open := a.Config.API.Grants(), auth == "none"
	switch local := access.IsLoopback(address); {
	case open && !local:
		return nil, failure.Usage("auth", "take --listen 127.0.0.1:7374, or tokens: ledgerd token new NAME",
			"--auth none goes with a loopback address only, not with %s", address)
	case !open && len(tokens) == 0:
		hint := "make a token: ledgerd token new NAME"
		if local {
			hint += "\nfor a trial on this machine: ledgerd api --auth none"
		}
		return nil, failure.Usage("auth", hint, "the config has no token, so no program could ask")
	}
	if open {
		a.Log.Warn("every program and every user of this machine may do everything: --auth none", "address", address)
	}
	return access.NewGuard(address, a.Config.API.Hosts, tokens, open), nil
}

// withMCP serves AI agents at mcp.Path, and all other paths by rest.
func withMCP(h *api.API, rest http.Handler) http.Handler {
	agents := mcp.NewHandler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == mcp.Path || r.URL.Path == h.Prefix+mcp.Path { // a proxy may leave the prefix or take it away
			agents.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// Bounds of connections. A client that reads slowly is cut off, since its answer takes memory until it has been read.
const (
	apiHeader = 16 << 10 // bytes
	apiRead   = 30 * time.Second
	apiWrite  = time.Minute
	apiEnd    = 5 * time.Second // for open requests when the server has to stop
)

// answerAPI serves h until ctx ends.
func answerAPI(ctx context.Context, at net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: apiRead, WriteTimeout: apiWrite,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: apiHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	return daemon.ServeUntil(ctx, at, s, apiEnd)
}

// listenAt opens a port. Its errors are for people.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	at, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, hostcheck.ErrInUse):
		return nil, failure.New(failure.ExitTaken, "port", fmt.Sprintf("%s is in use by another program", address),
			"another ledgerd on this machine? give each an address of its own: listen = \"127.0.0.1:7374\" or --listen; \"\" "+
				"for none")
	case errors.Is(err, syscall.EACCES):
		return nil, failure.New(failure.ExitDenied, "port", fmt.Sprintf("%s: not allowed", address),
			"ports below 1024 are for root; take another one: --listen 127.0.0.1:7373")
	case err != nil:
		return nil, failure.Usage("port", "it must be an address of this machine, such as 127.0.0.1:7373",
			"cannot listen on %s: %v", address, err)
	}
	return at, nil
}

const keptOld = "the new config is wrong: going on with the old one"

// logKept logs the mistakes of a new config, and what is kept in its place.
func logKept(a *app.App, err error, kept string) {
	if bad, ok := errors.AsType[*config.Error](err); ok {
		for _, p := range bad.Problems {
			a.Log.Error("config: "+p.Message, "at", p.Where(), "key", p.Key, "hint", p.Hint)
		}
	} else {
		a.Log.Error("config: "+failure.Explain(err).Message, "hint", failure.Explain(err).Hint)
	}
	a.Log.Error(kept)
}
