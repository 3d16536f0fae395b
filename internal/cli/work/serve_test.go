package work

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// TestAttemptInLog: the line of an attempt names its item by number and key, without the password of a URL.
func TestAttemptInLog(t *testing.T) {
	var out bytes.Buffer
	a := app.New(&app.Interrupts{Soft: t.Context(), Hard: t.Context()}, app.Program{}, os.Stdin, io.Discard, &out)
	must.OK(t, a.Configure(WorkCommand(a).Flags()))
	a.Log = a.DaemonLogger()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	s := &server{App: a, metrics: daemon.NewMetrics(version.String(), l, daemon.State{}), life: t.Context()}
	lease := &ledger.Lease{Item: ledger.Item{ID: 7, Kind: "urlcheck", Key: "https://ann:hunter2@a.example/x"}}
	s.attempt(worker.Event{Lease: lease, Recorded: ledger.OutcomeFailed, State: ledger.StateDead,
		Round: ledger.RoundFailed, Result: ledger.Result{Error: "x" + strings.Repeat("é", 300)}})
	var line struct {
		Item  int64
		Key   string
		Error string
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Item != 7 ||
		line.Key != "https://ann:***@a.example/x" || line.Error != "x"+strings.Repeat("é", 249)+"…" {
		t.Errorf("%v: %s", err, out.String())
	}
}

// away is a store whose kinds cannot be read while gone returns an error.
type away struct {
	ledger.Store
	gone func(context.Context) error
}

func (s away) Kinds(ctx context.Context, names ...string) ([]ledger.Kind, error) {
	if err := s.gone(ctx); err != nil {
		return nil, err
	}
	return s.Store.Kinds(ctx, names...)
}

// program returns an App as serve has it, with a config file.
func program(t *testing.T, file string, store func(ledger.Store) ledger.Store, log io.Writer) *app.App {
	t.Helper()
	a := app.New(&app.Interrupts{Soft: t.Context(), Hard: t.Context()}, app.Program{Store: store}, os.Stdin, io.Discard,
		log)
	a.ConfigFile = file
	must.OK(t, a.Configure(ServeCommand(a).Flags()))
	a.Log = a.DaemonLogger()
	return a
}

// TestOpenChecked: a kind that only the ledger has is no mistake, even if the ledger is unavailable at first. A kind
// that nothing has is a mistake, and no ledger is made.
func TestOpenChecked(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ledgerd.toml")
	for i, c := range []struct {
		kind                 string
		there, outage, wrong bool // there: the ledger exists and has the kind news
	}{
		{kind: "news", there: true},
		{kind: "news", there: true, outage: true},
		{kind: "nws", there: true, wrong: true},
		{kind: "nws", there: true, outage: true, wrong: true},
		{kind: "nws", wrong: true},
	} {
		at := filepath.Join(dir, fmt.Sprint(i)+".db")
		must.OK(t, os.WriteFile(file, []byte("db = \"sqlite:"+at+"\"\n[kinds."+c.kind+"]\nmax_failures = 3\n"), 0o600))
		var gone error
		a := program(t, file, func(s ledger.Store) ledger.Store {
			return away{s, func(context.Context) error {
				defer func() { gone = nil }()
				return gone
			}}
		}, io.Discard)
		if c.there {
			l, err := a.Create(t.Context())
			must.OK(t, err)
			_, err = l.EditKind(t.Context(), "ann", "news", func(k *ledger.Kind, _ bool) { k.Input.Type = "line" })
			must.OK(t, err)
			must.OK(t, l.Close())
		}
		if c.outage {
			gone = ledger.ErrUnavailable
		}
		l, err := openChecked(t.Context(), a, false)
		if (err != nil) != c.wrong || c.wrong && !strings.Contains(err.Error(), `no plugin or kind "nws"`) {
			t.Errorf("%+v: %v", c, err)
		}
		if l != nil {
			must.OK(t, l.Close())
		}
		if _, err := os.Stat(at); !c.there && err == nil {
			t.Errorf("%+v: a ledger was made", c)
		}
	}
}

// TestReloadAway: a token that the new config does not have is refused at once, even while the ledger is unavailable or
// does not answer. The rest of the config is taken over when the ledger is back. Keys that need a restart keep their
// values, and cause no mistake.
func TestReloadAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ledgerd.toml")
		write := func(lease, token, failures string) {
			hash := access.Hash(token)
			must.OK(t, os.WriteFile(file, []byte("lease = \""+lease+"\"\n[api]\nlisten = \"127.0.0.1:1\"\n[api.tokens.a]\n"+
				"scopes = [\"read\"]\nsha256 = \""+hex.EncodeToString(hash[:])+"\"\n[kinds.news]\nmax_failures = "+failures+"\n"),
				0o600))
		}
		before := access.NewToken()
		write("1m", before, "3")
		there := func(context.Context) error { return nil }
		gone := there
		l := ledger.New(away{memory.New(memory.Options{}), func(ctx context.Context) error { return gone(ctx) }},
			ledger.Options{})
		must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "news", MaxFailures: 3}))
		var log bytes.Buffer
		a := program(t, file, nil, &log)
		guard, err := newGuard(a, a.Config.API.Listen, a.Config.API.Auth)
		must.OK(t, err)
		s := &server{App: a, ledger: &app.Database{Ledger: l}, hup: make(chan os.Signal, 1), life: t.Context(),
			pool: runner.NewPool(&a.Local, l, runner.PoolOptions{}),
			api:  api.New(api.Config{Ledger: l, Reader: l, Guard: guard})}
		known := func(token string) bool {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			_, err := guard.Login(r)
			return err == nil
		}
		for _, c := range []struct {
			failures int
			answers  int // of the ledger, before it is away
			hangs    bool
		}{{4, 0, false}, {5, 0, true}, {6, 1, false}} {
			now := access.NewToken()
			write("2m", now, fmt.Sprint(c.failures))
			gone = func(ctx context.Context) error {
				if c.answers--; c.answers >= 0 {
					return nil
				}
				if c.hangs {
					<-ctx.Done()
					return ctx.Err()
				}
				return ledger.ErrUnavailable
			}
			s.reload(t.Context())
			gone = there
			if known(before) || !known(now) {
				t.Errorf("%+v: the new tokens are not in force\n%s", c, log.String())
			}
			if k, err := l.Kind(t.Context(), "news"); err != nil || k.MaxFailures == c.failures {
				t.Errorf("%+v: %+v, %v", c, k, err)
			}
			<-s.hup // the retry, after reloadPause
			must.OK(t, os.WriteFile(file, []byte("half\n"), 0o600))
			s.reload(t.Context())
			if known(before) || !known(now) {
				t.Errorf("%+v: a wrong file brings back the tokens of before\n%s", c, log.String())
			}
			write("2m", now, fmt.Sprint(c.failures))
			<-s.hup // once more: an editor may have been writing the file
			s.reload(t.Context())
			if k, err := l.Kind(t.Context(), "news"); err != nil || k.MaxFailures != c.failures ||
				s.Config.Lease != time.Minute || s.Config.File != file {
				t.Errorf("%+v: %+v, %v, lease %s\n%s", c, k, err, s.Config.Lease, log.String())
			}
			before = now
		}
		must.OK(t, os.WriteFile(file, []byte("[kinds.news]\nmax_failures = 7\n"), 0o600))
		s.reload(t.Context())
		if k, err := l.Kind(t.Context(), "news"); err != nil || k.MaxFailures != 7 || known(before) {
			t.Errorf("without [api]: %+v, %v, the token is known: %t\n%s", k, err, known(before), log.String())
		}
	})
}

// TestSourcesTrouble: an error of all sources is logged once and then from time to time, even if its text differs.
func TestSourcesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ledgerd.toml")
		must.OK(t, os.WriteFile(file, []byte("[[source]]\nname = 'in'\ntype = 'folder'\nkind = 'news'\npath = '.'\n"), 0o600))
		tries := 0
		l := ledger.New(away{memory.New(memory.Options{}), func(context.Context) error {
			tries++
			return fmt.Errorf("port %d: %w", 40000+tries, ledger.ErrUnavailable)
		}}, ledger.Options{})
		var log bytes.Buffer
		s := &server{App: program(t, file, nil, &log), ledger: &app.Database{Ledger: l}}
		for began := time.Now(); time.Since(began) <= troublePause; time.Sleep(2 * time.Second) {
			if err := s.renewSources(t.Context()); !errors.Is(err, ledger.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), "sources go on as they were"); n != 2 || tries < 100 {
			t.Errorf("%d lines after %d tries", n, tries)
		}
	})
}

// TestReached: a link has the host that the guard knows and the port of the socket.
func TestReached(t *testing.T) {
	for _, test := range []struct{ address, socket, want string }{
		{"ledger.lan:0", "10.0.0.5:7375", "ledger.lan:7375"}, {"0.0.0.0:7375", "[::]:7375", "0.0.0.0:7375"},
		{"localhost:0", "127.0.0.1:7375", "127.0.0.1:7375"}, {":7375", "[::]:7375", "[::]:7375"},
	} {
		if got := reached(test.address, test.socket); got != test.want {
			t.Errorf("%s on %s: %s, want %s", test.address, test.socket, got, test.want)
		}
	}
}
