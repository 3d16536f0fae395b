package work

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ui"
)

// uiAddress is the default of --listen.
const uiAddress = "127.0.0.1:7375"

func UICommand(a *app.App) *cobra.Command {
	var listen string
	var noOpen bool
	auth := app.ChoiceFlag{Of: []string{"tokens", "none"}}
	cmd := &cobra.Command{
		Use: "ui", Short: "Show a ledger in the browser", GroupID: app.GroupLook, Args: app.Arguments(0, 0),
		Long: `Shows a ledger in the browser until it is stopped: what waits, what failed and why, who holds what, and what
operators did. Items are retried and cancelled there, too, and people take theirs. No plugin is started.

On this machine it prints a link and opens it if there is a browser. The link logs in once, within ten minutes. On
other addresses (--listen) people log in with a token of the config: ledgerd token new NAME.
With --auth none every user and program of this machine may look and act. This needs a loopback address.`,
		Example: "  ledgerd ui\n  ledgerd ui --db postgres://user@host/name --no-open",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveUI(cmd.Context(), a, cmp.Or(listen, uiAddress), auth.Value, noOpen)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "", "`address`, host:port (default "+uiAddress+")")
	f.BoolVar(&noOpen, "no-open", false, "only print the link, open no browser")
	f.Var(&auth, "auth", "who may look: people with the link or a token, or every user of this machine")
	return cmd
}

// serveUI serves the pages until ctx ends, with a link that logs in on this machine.
func serveUI(ctx context.Context, a *app.App, address, auth string, noOpen bool) error {
	a.Log, a.Notices = a.DaemonLogger(), nil
	token := ""
	var guard *access.Guard
	if access.IsLoopback(address) && auth != "none" {
		token = access.NewToken()
		mine := access.Token{Grant: access.Anyone, Hash: access.Hash(token)}
		mine.Name = uiName()
		guard = access.NewGuard(address, a.Config.API.Hosts, append(a.Config.API.Grants(), mine), false)
	} else {
		var err error
		if guard, err = newGuard(a, address, auth); err != nil {
			return err
		}
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
	l, err := a.OpenAt(ctx, db, app.ToRead)
	if err != nil {
		return err
	}
	defer l.Close()
	h, done, err := openAPI(ctx, a, l, guard, "")
	if err != nil {
		return err
	}
	defer done()
	link := "http://" + reached(address, at.Addr().String()) + "/"
	o := ui.Options{API: h, Admit: guard.AdmitPage, Name: ledgerName(a, db), Trace: a.Config.TraceLink,
		Verdicts: func(kind string) []string { return verdictsOf(a.Config, kind) }}
	if auth != "none" {
		o.Sessions = ui.NewSessions()
	}
	if token != "" {
		link += "login?code=" + o.Sessions.Code(token)
	}
	fmt.Fprintln(a.Stdout, link)
	if !noOpen {
		openBrowser(ctx, link)
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Run(ctx)
	}()
	err = answerAPI(ctx, at, withAPI(h, ui.New(o)))
	end()
	<-ended
	return err
}

// reached returns the host:port for a link to a server. The guard knows the host in the address that was given, and
// other hosts are refused. The port is that of the socket, because the one in the address may be 0.
func reached(address, socket string) string {
	host, _, err := net.SplitHostPort(address)
	_, port, bad := net.SplitHostPort(socket)
	if err != nil || bad != nil || host == "" || access.IsLoopback(address) {
		return socket
	}
	return net.JoinHostPort(host, port)
}

// uiName returns the name of the link's token, and so of the agent of its desk: "ui-USER-HOST". It is the same after a
// restart.
func uiName() string {
	who := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	host, _ := os.Hostname() // "" if it is not known
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '-' // such as the \ of a domain's user
	}, "ui-"+who+"-"+host)
}

// withAPI serves the API beside the pages.
func withAPI(h *api.API, pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(api.Base+"/", h)
	if h.Prefix != "" {
		mux.Handle(h.Prefix+api.Base+"/", h)
	}
	mux.Handle("/", pages)
	return mux
}

// verdictsOf returns the buttons of the desk for a kind that people work.
func verdictsOf(c *config.Config, kind string) []string {
	if k := c.Kinds[kind]; k != nil {
		return k.Verdicts
	}
	return nil
}

// ledgerName returns the name of a ledger's database or file, and the environment.
func ledgerName(a *app.App, db dburl.Database) string {
	address, _, _ := strings.Cut(db.Brief(), "?")
	return path.Base(filepath.ToSlash(address)) + report.Prefixed(" · ", a.Config.Environment)
}

// openBrowser opens a link in a browser, if a person is at a terminal and there is a desktop. Its errors are ignored:
// the link was printed.
func openBrowser(ctx context.Context, link string) {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return
	}
	open := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		open = []string{"open"}
	case "windows":
		open = []string{"rundll32", "url.dll,FileProtocolHandler"}
	default:
		if os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "" {
			return
		}
	}
	cmd := exec.CommandContext(ctx, open[0], append(open[1:], link)...)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}
