package work

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/mcp"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// mcpFlags are the flags of mcp.
type mcpFlags struct {
	agent         string
	kinds, scopes []string
}

func MCPCommand(a *app.App) *cobra.Command {
	var o mcpFlags
	cmd := &cobra.Command{
		Use: "mcp", Short: "Give an agent (an assistant, a coding agent) the ledger over MCP, on stdin and stdout",
		GroupID: app.GroupWork, Args: app.Arguments(0, 0),
		Long: `Serves one agent over the Model Context Protocol on stdin and stdout, until the agent closes stdin. The program of the
agent starts this command. docs/agents.md has the lines for its config.

The tools are add, claim, renew, finish, release, show, list, errors and stats, and with the scope operate also act.
Each call of the agent renews what the agent holds. An agent that makes no call for the time of its lease loses its
items, and its next answer reports that. What it has claimed ahead and not begun goes back when it ends.

With --kind the agent sees and touches only these kinds; the ledger and the kinds are made if there are none. Over
HTTP (--db https://…) the token decides about kinds and scopes.`,
		Example: "  ledgerd mcp --kind task\n  ledgerd mcp --db https://ledger.example --agent ann-1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dburl.IsRemote(a.Db) {
				return mcpOver(cmd, a, o)
			}
			return mcpHere(cmd.Context(), a, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "`name` of the agent; a program that starts again under its name gets back what it "+
		"holds (default: host/pid/random)")
	f.StringSliceVar(&o.kinds, "kind", nil, "only these `kinds`, made if there are none (default: all)")
	f.StringSliceVar(&o.scopes, "scope", []string{"read", "payload", "add", "work"},
		"`scopes` of the agent: "+access.ScopeNames())
	return cmd
}

// mcpOver serves an agent of a ledger that is reached over HTTP.
func mcpOver(cmd *cobra.Command, a *app.App, o mcpFlags) error {
	if cmd.Flags().Changed("kind") || cmd.Flags().Changed("scope") {
		return failure.Usage("usage", "ledgerd token new NAME --kind … --scope …, on the server",
			"over HTTP the token decides about kinds and scopes")
	}
	at, token, err := a.Remote()
	if err != nil {
		return err
	}
	l, err := a.Reach(cmd.Context(), app.ToRead) // its errors are those of every command over HTTP
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	caller := &mcp.Caller{Client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for the server that was named
	}}, At: string(at), Token: token, Environment: a.Config.Environment}
	return serveAgent(cmd.Context(), a, caller, o.agent)
}

// mcpHere serves an agent of a ledger over its database. It calls the API within this process, with a token for --scope
// and --kind, so that the agent has the same rights as any program with such a token.
func mcpHere(ctx context.Context, a *app.App, o mcpFlags) error {
	grant := access.Grant{Name: "mcp", Kinds: o.kinds}
	for _, s := range o.scopes {
		if !slices.Contains(access.Scopes, access.Scope(s)) {
			return failure.Usage("bad_flag", "", "--scope %s: no scope; there are %s", s, access.ScopeNames())
		}
		grant.Scopes = append(grant.Scopes, access.Scope(s))
	}
	if !grant.May(access.Read) {
		return failure.Usage("bad_flag", "--scope read,"+strings.Join(o.scopes, ","), "--scope: an agent needs read as well")
	}
	l, err := openForAgent(ctx, a, o.kinds)
	if err != nil {
		return err
	}
	defer l.Close()
	token := access.NewToken()
	h := api.New(api.Config{Ledger: l.Ledger, Log: a.Log, Version: answer.NewVersion(wire.Version), Quiet: true,
		Guard: access.NewGuard("localhost", nil, []access.Token{{Grant: grant, Hash: access.Hash(token)}}, false)})
	h.Hide(a.Config.API.Hide)
	keeper, err := worker.New(worker.Config{Ledger: l.Ledger, Quiet: true, Logger: a.Log})
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	beside.Go(func() { h.Run(life) })
	beside.Go(func() {
		if err := keeper.Run(life); err != nil {
			a.Log.Error("the ledger is not kept in order: what is due and what expires waits for another program", "error", err)
		}
	})
	caller := &mcp.Caller{Client: &http.Client{Transport: mcp.Within{Handler: h}}, At: "http://localhost", Token: token}
	return serveAgent(ctx, a, caller, o.agent)
}

// openForAgent opens a ledger. With names of kinds it makes the ledger and the kinds if there are none.
func openForAgent(ctx context.Context, a *app.App, names []string) (*app.Database, error) {
	for _, name := range names {
		if err := kinds.CheckKind(name); err != nil {
			return nil, err
		}
	}
	if len(names) > 0 {
		l, err := a.Create(ctx)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		for _, name := range names {
			_, err := l.EditKind(ctx, app.Actor(), name, func(k *ledger.Kind, known bool) {
				if !known {
					k.Input.Type = intake.Line // a person adds tasks by their names
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	at, err := a.Address()
	if err != nil {
		return nil, err
	}
	return a.OpenAt(ctx, at, app.ToWork)
}

// serveAgent serves an agent on stdin and stdout.
func serveAgent(ctx context.Context, a *app.App, caller *mcp.Caller, agent string) error {
	me, err := caller.Me(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	if agent == "" {
		host, _ := os.Hostname() // "" if it is not known
		agent = fmt.Sprintf("%s%.200s/%d/%06x", me.Agent, cmp.Or(host, "localhost"), os.Getpid(), rand.IntN(1<<24))
	}
	if !strings.HasPrefix(agent, me.Agent) {
		return failure.Usage("scope", "", "--agent %s: the token is for names that begin with %s", agent, me.Agent)
	}
	return mcp.Serve(ctx, caller, agent, io.NopCloser(a.Stdin), unclosed{a.Stdout})
}

// unclosed is a writer whose Close does nothing: other code may still write to stdout.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
