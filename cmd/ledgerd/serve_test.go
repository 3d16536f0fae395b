package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// site is a machine with a config file, for daemons.
type site struct {
	*machine
	dir, config string
}

func (m *machine) site(config string) *site {
	m.t.Helper()
	s := &site{machine: m, dir: m.t.TempDir()}
	s.config = filepath.Join(s.dir, "ledgerd.toml")
	s.write("ledgerd.toml", config)
	return s
}

// write writes a file of the site; DIR in a text is its folder.
func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	must.OK(s.t, os.WriteFile(path+".part", []byte(strings.ReplaceAll(text, "DIR", s.dir)), 0o600))
	must.OK(s.t, os.Rename(path+".part", path))
}

// list writes a list with so many lines.
func (s *site) list(name string, lines int) {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "%s %d\n", name, i)
	}
	s.write(name, b.String())
}

// daemon starts a daemon and waits until it serves.
func (s *site) daemon(args ...string) *started {
	s.t.Helper()
	return s.serves(s.start(append([]string{"serve", "--config", s.config}, args...)...))
}

// serves waits until a daemon serves.
func (s *site) serves(p *started) *started {
	s.t.Helper()
	s.until("it serves", func() bool {
		select {
		case <-p.done:
			s.t.Fatalf("ledgerd serve ended\n%s", p.stderr.String())
		default:
		}
		return strings.Contains(p.stderr.String(), `"msg":"serving"`)
	})
	return p
}

var addressForm = regexp.MustCompile(`"address":"([0-9.:]+)"`)

// ask sends a request to a daemon.
func (s *site) ask(p *started, path string) (code int, body string) {
	s.t.Helper()
	at := addressForm.FindStringSubmatch(p.stderr.String())
	if at == nil {
		s.t.Fatalf("no address in the log\n%s", p.stderr.String())
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + at[1] + path)
	must.OK(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must.OK(s.t, err)
	return res.StatusCode, string(text)
}

// looks reports whether a daemon is the one that reads a source.
func (s *site) looks(p *started, source string) bool {
	_, body := s.ask(p, "/metrics")
	return strings.Contains(body, fmt.Sprintf("ledger_source_looking{source=%q} 1\n", source))
}

// done returns how many items of a kind are done.
func (s *site) done(kind string) int {
	return s.count("state:done kind:" + kind)
}

func (s *site) signal(p *started, sig syscall.Signal) {
	s.t.Helper()
	must.OK(s.t, p.Process.Signal(sig))
}

const base = `
listen = "127.0.0.1:0"
lease = "5s"
[kinds.effect.with]
path = "DIR/effects"
`

// itemLines checks that every line about an item has its id, attempt and agent.
func itemLines(t *testing.T, p *started) {
	t.Helper()
	for line := range strings.Lines(p.stderr.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("no JSON: %s", line)
		}
		if _, about := fields["item"]; about && (fields["attempt"] == nil || fields["agent"] == nil) {
			t.Errorf("about an item, without its attempt or agent: %s", line)
		}
	}
}

// A wrong config changes nothing; a good one is used, and the changes are logged.
func TestServeReload(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(base)
		s.list("orders", 3)
		p := s.daemon()
		s.write("ledgerd.toml", base+"[[source]]\nname = \"orders\"\ntype = \"list\"\nkind = \"efect\"\npath = "+
			"\"DIR/orders\"\nlevel = 3\n")
		s.signal(p, syscall.SIGHUP)
		s.until("it reports so", func() bool { return strings.Contains(p.stderr.String(), "going on with the old one") })
		for _, want := range []string{"efect", "level", "did you mean", "ledgerd.toml:"} {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("%q is not in the log\n%s", want, p.stderr.String())
			}
		}
		if code, body := s.ask(p, "/readyz"); code != http.StatusOK || strings.Contains(body, "orders") {
			t.Errorf("%d %s", code, body)
		}
		s.write("ledgerd.toml", strings.Replace(base, `"5s"`, `"6s"`, 1)+"[[source]]\nname = \"orders\"\ntype = "+
			"\"list\"\nkind = \"effect\"\npath = \"DIR/orders\"\n[kinds.filecsv]\nmax_failures = 3\nrate = \"5/s\"\n")
		s.signal(p, syscall.SIGHUP)
		s.until("the new source is worked", func() bool { return s.done("effect") == 3 })
		s.until("it prints what changed", func() bool { return strings.Contains(p.stderr.String(), "was read anew") })
		for _, want := range []string{`"key":"source.orders","needs_restart":false`,
			`"key":"lease","needs_restart":true`} {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("%q is not in the log\n%s", want, p.stderr.String())
			}
		}
		s.until("the policy is written", func() bool {
			text := s.run(failure.ExitOK, "kind", "ls", "-o", "json")
			return strings.Contains(text, `"max_failures":3`) && strings.Contains(text, `"rate":"5/s"`)
		})
		s.write("ledgerd.toml", strings.Replace(base, "[kinds.effect.with]\npath = \"DIR/effects\"", "[kinds.filecsv]", 1))
		s.signal(p, syscall.SIGHUP)
		s.until("a kind that is gone is let go", func() bool {
			_, body := s.ask(p, "/readyz")
			return !strings.Contains(body, `"effect"`) && strings.Contains(body, `"filecsv": ""`)
		})
		s.run(failure.ExitOK, "add", "effect", "more")
		s.signal(p, syscall.SIGTERM)
		if code := s.exit(p); code != failure.ExitOK || s.done("effect") != 3 {
			t.Errorf("exit %d, %d done\n%s", code, s.done("effect"), p.stderr.String())
		}
	})
}

// splitting is a config with a command that adds an item.
const splitting = `[kinds.split]
plugin = "exec"
input = "line"
[kinds.split.with]
stay = true
emits = ["part"]
env.EMIT = '"emit":[{"kind":"part","key":"c","payload":{"text":"c"}}]'
command = ["sh", "-c", "read l; l=${{l#*:}}; echo \"{{\\\"id\\\":${{l%%,*}},$EMIT}}\""]
`

// A daemon also works kinds that are not named but emitted by its plugins, and kinds that these emit in turn; it does
// not work other kinds of the ledger.
func TestServeEmitted(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(base + splitting)
		s.run(failure.ExitOK, "db", "migrate")
		s.run(failure.ExitOK, "kind", "set", "other", "--plugin", "effect")
		s.run(failure.ExitOK, "kind", "set", "note", "--plugin", "effect")
		s.run(failure.ExitOK, "kind", "set", "part", "--plugin", "effect")
		s.run(failure.ExitOK, "add", "other", "x")
		p := s.daemon()
		s.run(failure.ExitOK, "add", "effect", "a", "--set", "how=emit")
		s.until("what was emitted is done", func() bool { return s.done("note") > 0 })
		s.run(failure.ExitOK, "--config", s.config, "add", "split", "b")
		s.until("what a config permits to emit is done", func() bool { return s.done("part") > 0 })
		body := ""
		s.until("the kind is known to be worked", func() bool { // its first item may be done before that
			_, body = s.ask(p, "/readyz")
			return strings.Contains(body, `"note": ""`)
		})
		if strings.Contains(body, `"other"`) {
			t.Error(body)
		}
		s.signal(p, syscall.SIGTERM)
		if code := s.exit(p); code != failure.ExitOK || s.done("effect") != 1 || s.done("other") != 0 {
			t.Errorf("exit %d\n%s", code, p.stderr.String())
		}
	})
}

// The first signal lets running items finish, the second ends them now; neither loses anything.
func TestServeStop(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site("agent = \"desk\"\n" + base)
		begun := func() int { return len(lines(t, filepath.Join(s.dir, "effects"), "start")) }
		till := filepath.Join(s.dir, "go")
		p := s.daemon()
		s.run(failure.ExitOK, "add", "effect", "a", "b", "c", "--set", "till="+till)
		s.until("all are begun", func() bool { return begun() == 3 })
		s.signal(p, syscall.SIGTERM)
		s.until("it reports so", func() bool { return strings.Contains(p.stderr.String(), "finishing what runs") })
		if code, body := s.ask(p, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
			t.Errorf("%d %s", code, body)
		}
		s.write("go", "")
		if code := s.exit(p); code != failure.ExitOK || s.done("effect") != 3 {
			t.Errorf("exit %d, %d done\n%s", code, s.done("effect"), p.stderr.String())
		}

		if text := s.run(failure.ExitOK, "show", "a", "-o", "json"); !strings.Contains(text, `"agent": "desk"`) {
			t.Errorf("not by the name of the config:\n%s", text)
		}

		must.OK(t, os.Remove(till))
		p = s.daemon()
		s.run(failure.ExitOK, "add", "effect", "d", "e", "--set", "till="+till)
		s.until("they are begun", func() bool { return begun() == 5 })
		s.signal(p, syscall.SIGTERM)
		s.until("it reports so", func() bool { return strings.Contains(p.stderr.String(), "finishing what runs") })
		s.stop(p, syscall.SIGTERM, 143)
		s.write("go", "")
		p = s.daemon()
		s.until("they are done", func() bool { return s.done("effect") == 5 })
		s.stop(p, syscall.SIGINT, failure.ExitOK, `"msg":"stopped"`)
		s.run(failure.ExitOK, "db", "verify")
	})
}

// A daemon that cannot work ends, even if it could still read its sources.
func TestServeBroken(t *testing.T) {
	t.Parallel()
	s := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")).site(base +
		"[[source]]\nname = \"orders\"\ntype = \"list\"\nkind = \"effect\"\npath = \"DIR/orders\"\n")
	s.list("orders", 1)
	p := s.start("serve", "--config", s.config, "--lease", "1s") // the workers refuse this lease
	if code := s.exit(p); code != failure.ExitUsage || !strings.Contains(p.stderr.String(), "--lease: 1s, must be 5s") ||
		strings.Contains(p.stderr.String(), "a source does not end") {
		t.Errorf("exit %d\n%s", code, p.stderr.String())
	}
}

// A daemon reports to systemd that it is ready, that it lives (at intervals), and that it stops. A second one on its
// port ends, and so does one with a wrong config.
func TestServeTellsSystemd(t *testing.T) {
	t.Parallel()
	s := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")).site(base)
	dir, err := os.MkdirTemp("", "ledgerd-") // sockets need short paths
	must.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "notify")
	at, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must.OK(t, err)
	defer at.Close()
	told := func(want string) {
		t.Helper()
		must.OK(t, at.SetReadDeadline(time.Now().Add(patience)))
		for said, b := "", make([]byte, 100); said != want; {
			n, err := at.Read(b)
			if err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			said = string(b[:n])
		}
	}
	plain := s.env
	s.env = append(slices.Clone(plain), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	p := s.daemon()
	told("READY=1")
	told("WATCHDOG=1")
	s.env = plain
	port := addressForm.FindStringSubmatch(p.stderr.String())[1]
	s.ends(s.start("serve", "--config", s.config, "--listen", port), failure.ExitTaken, port+" is in use", "listen = ")
	if code, body := s.ask(p, "/livez"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("%d %s", code, body)
	}
	s.write("ledgerd.toml", base+"[kinds.urlchek]\n")
	s.ends(s.start("serve", "--config", s.config), failure.ExitUsage, "urlcheck")
	told("WATCHDOG=1")
	s.signal(p, syscall.SIGTERM)
	told("STOPPING=1")
	s.ends(p, failure.ExitOK)
}

// The systemd units start a valid command line of this program, and expect its way of stopping.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("../../contrib/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("%v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		must.OK(t, err)
		if !strings.Contains(string(text), "\nKillMode=mixed\n") {
			t.Errorf("%s: no KillMode=mixed", unit)
		}
		line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/ledgerd (.+)$`).FindStringSubmatch(string(text))
		if line == nil {
			t.Fatalf("%s starts no ledgerd", unit)
		}
		cmd, args, err := cli.Root(testApp(new(bytes.Buffer))).Find(strings.Fields(line[1]))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err != nil || !cmd.Runnable() || len(cmd.Flags().Args()) > 0 {
			t.Errorf("%s: %s: %v", unit, line[1], err)
		}
	}
}

// A daemon answers and works on a ledger of thousands of kinds, most of which are worked by other programs.
func TestServeThousandsOfKinds(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site("listen = \"127.0.0.1:0\"\n[kinds.k1700]\nplugin = \"effect\"\n[kinds.k1700.with]\npath = \"DIR/effects\"\n")
		var all []ledger.NewItem
		for i := range 3000 {
			all = append(all, ledger.NewItem{Kind: fmt.Sprint("k", i), Key: "one", Payload: []byte(`{"text":"one"}`)})
		}
		l := m.ledger()
		for part := range slices.Chunk(all, bounds.MaxBatch) {
			must.Do(t)(l.Add(t.Context(), part...))
		}
		p := s.daemon()
		s.until("the item is done", func() bool { return s.done("k1700") == 1 })
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			if code, body := s.ask(p, path); code != http.StatusOK {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		s.stop(p, syscall.SIGTERM, failure.ExitOK)
	})
}
