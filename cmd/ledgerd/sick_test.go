package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// sick is a plugin that cannot start to work: sick NAME MODE [FILE]. With a file it fails as long as the file exists.
// It speaks the protocol itself.
type sick struct {
	wire.UnimplementedPluginServer
	goplugin.NetRPCUnsupportedPlugin
	name, mode string
}

func serveSick() {
	s := &sick{name: os.Args[1], mode: os.Args[2]}
	if len(os.Args) > 3 {
		if _, err := os.Stat(os.Args[3]); err != nil {
			s.mode = "well"
		}
	}
	switch s.mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "no licence")
		os.Exit(7)
	case "print":
		fmt.Println("Welcome to the plugin!")
	case "hang-handshake":
		select {}
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{wire.Version: {wire.Service: s}},
		GRPCServer:       func(opts []grpc.ServerOption) *grpc.Server { return grpc.NewServer(opts...) },
	})
}

func (s *sick) GRPCServer(_ *goplugin.GRPCBroker, g *grpc.Server) error {
	wire.RegisterPluginServer(g, s)
	return nil
}

func (s *sick) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no client")
}

func (s *sick) Describe(context.Context, *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	d := &wire.DescribeResponse{Name: s.name, Version: "0.1.0", Doc: "It is \x1b[31mred\u202e", Concurrency: 8,
		InputSchema:  []byte(`{"type":"object","properties":{"text":{"type":"string"},"code":{"type":"string","writeOnly":true}}}`),
		ConfigSchema: []byte(`{"type":"object"}`), OutputSchema: []byte(`{}`),
		Input: &wire.Input{Field: "text", Type: "line"}}
	switch s.mode {
	case "name":
		d.Name = "somebody-else"
	case "schema":
		d.InputSchema = []byte(`{"type":"obj`)
	case "hang-describe":
		select {}
	}
	return d, nil
}

func (s *sick) Configure(_ context.Context, req *wire.ConfigureRequest) (*wire.ConfigureResponse, error) {
	switch {
	case s.mode == "hang-validate", s.mode == "hang-open" && !req.ValidateOnly:
		select {}
	case s.mode == "open" && !req.ValidateOnly:
		return &wire.ConfigureResponse{Problems: []*wire.Problem{{Message: "the database is away"}}}, nil
	}
	return &wire.ConfigureResponse{}, nil
}

func (s *sick) CheckHealth(context.Context, *wire.CheckHealthRequest) (*wire.CheckHealthResponse, error) {
	return &wire.CheckHealthResponse{}, nil
}

func (s *sick) Drain(context.Context, *wire.DrainRequest) (*wire.DrainResponse, error) {
	return &wire.DrainResponse{}, nil
}

func (s *sick) Process(rpc wire.Plugin_ProcessServer) error {
	for answer := (&wire.PluginMessage{Credits: 8}); ; {
		if err := rpc.Send(answer); err != nil {
			return err
		}
		m, err := rpc.Recv()
		if err != nil {
			return err
		}
		answer = &wire.PluginMessage{Credits: int32(len(m.Items))}
		for _, it := range m.Items {
			answer.Results = append(answer.Results, &wire.Result{Id: it.Id, Attempt: it.Attempt, LockId: it.LockId,
				Outcome: wire.Result_OUTCOME_DONE})
		}
	}
}

// sicknesses are the ways in which a plugin fails to start, with the code of each.
var sicknesses = map[string]string{
	"exit": "plugin_start", "print": "plugin_start", "true": "plugin_start", "hang-handshake": "plugin_start",
	"name": "plugin_description", "schema": "plugin_description",
	"hang-describe": "plugin_timeout", "hang-validate": "plugin_timeout", "hang-open": "plugin_timeout",
	"open": "plugin_open",
}

// sickSite is a site with a kind for each of some ways, "exit" among them, and one kind that works.
func (m *machine) sickSite(modes ...string) *site {
	config := "listen = \"127.0.0.1:0\"\nlease = \"5s\"\n[kinds.effect.with]\npath = \"DIR/effects\"\n"
	for _, mode := range modes {
		command := fmt.Sprintf(`"DIR/sick", %q, %q, "DIR/ill-%s"`, mode, mode, mode)
		if mode == "true" {
			command = `"/bin/true"`
		}
		config += fmt.Sprintf("[kinds.%s]\n[plugins.%s]\ncommand = [%s]\n", mode, mode, command)
		if strings.HasPrefix(mode, "hang-") {
			config += "answer_time = \"2s\"\n"
		}
	}
	s := m.site(config + "[[source]]\nname = \"later\"\ntype = \"list\"\nkind = \"exit\"\npath = " +
		"\"DIR/later\"\nschedule = \"1s\"\n")
	link(m.t, filepath.Join(s.dir, "sick"))
	for _, mode := range modes {
		s.write("ill-"+mode, "")
	}
	s.list("later", 3)
	return s
}

// asked is the body of an answer of /readyz.
type asked struct {
	Ready   bool
	Problem string
	Kinds   map[string]string
}

func (s *site) ready(p *started) (code int, answer asked) {
	s.t.Helper()
	code, body := s.ask(p, "/readyz")
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		s.t.Fatalf("%v: %s", err, body)
	}
	return code, answer
}

// Plugins that fail to start, in any way, do not keep other kinds from being worked, are named everywhere, and are used
// when they are well.
func TestServeSick(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	s := m.sickSite(slices.Sorted(maps.Keys(sicknesses))...)
	s.run(failure.ExitOK, "--config", s.config, "add", "effect", "a", "b")
	began := time.Now()
	p := s.start("serve", "--config", s.config)
	s.until("it listens", func() bool { return addressForm.MatchString(p.stderr.String()) })
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		asking := time.Now()
		if code, body := s.ask(p, path); path == "/livez" && code != http.StatusOK || path == "/readyz" &&
			code != http.StatusServiceUnavailable {
			t.Errorf("%s at the start: %d %s", path, code, body)
		}
		if took := time.Since(asking); took > time.Minute {
			t.Errorf("%s answers after %s", path, took)
		}
	}
	s.until("the others work", func() bool { return s.done("effect") == 2 })
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("the others work after %s", took)
	}
	want := maps.Clone(sicknesses)
	want["effect"] = ""
	var answer asked
	var code int
	s.until("each kind has its code", func() bool {
		code, answer = s.ready(p)
		return maps.Equal(answer.Kinds, want)
	})
	if code != http.StatusServiceUnavailable || answer.Ready ||
		!strings.Contains(answer.Problem, "hang-open (plugin_timeout)") || strings.Contains(answer.Problem, "licence") {
		t.Errorf("%d %+v", code, answer)
	}
	s.until("the others know", func() bool {
		var agents []struct {
			Stalled []string
			Plugins []struct{ Kind, Error string }
		}
		out := s.run(failure.ExitOK, "agents", "-o", "json")
		must.OK(t, json.Unmarshal([]byte(out), &agents))
		return len(agents) > 0 && slices.Contains(agents[0].Stalled, "open") &&
			!slices.Contains(agents[0].Stalled, "effect") &&
			slices.ContainsFunc(agents[0].Plugins, func(p struct{ Kind, Error string }) bool {
				return p.Kind == "open" && strings.Contains(p.Error, "the database is away")
			}) && !strings.Contains(out, "licence") // the output of a plugin is not shown: it may be about an item
	})
	for mode := range sicknesses {
		if mode != "true" {
			must.OK(t, os.Remove(filepath.Join(s.dir, "ill-"+mode)))
		}
	}
	maps.DeleteFunc(want, func(mode, _ string) bool { want[mode] = ""; return mode == "true" })
	want["true"] = sicknesses["true"]
	s.until("they have recovered", func() bool { _, answer = s.ready(p); return maps.Equal(answer.Kinds, want) })
	s.until("the source of one is looked at", func() bool { return s.done("exit") == 3 })
	log := p.stderr.String()
	for mode := range want {
		if mode != "effect" && !strings.Contains(log, fmt.Sprintf("plugin %s (", mode)) {
			t.Errorf("plugin %s is not named in the log", mode)
		}
		if mode != "effect" && mode != "true" &&
			!strings.Contains(log, fmt.Sprintf(`"msg":"kind is worked here again","kind":%q`, mode)) {
			t.Errorf("the recovery of %s is not in the log", mode)
		}
	}
	s.stop(p, syscall.SIGTERM, failure.ExitOK)
	s.run(failure.ExitOK, "db", "verify")
}

// plugin check gives up on a plugin that hangs, and names the call.
func TestCheckSick(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	s := m.sickSite("exit", "hang-handshake", "hang-describe")
	for mode, want := range map[string]string{
		"hang-handshake": "the line of the handshake: no answer within 2s",
		"hang-describe":  "the call Describe: no answer within 2s",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := s.start("--config", s.config, "plugin", "check", mode, "--quick")
			s.ends(p, failure.ExitError)
			if text := p.stdout.String() + p.stderr.String(); !strings.Contains(text, want) {
				t.Errorf("%q is not in %s", want, text)
			}
		})
	}
}

// Commands that ask all plugins name those that do not answer, show the others, and end.
func TestAskSick(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	modes := []string{"exit", "schema", "hang-describe", "hang-validate", "hang-open", "open"}
	s := m.sickSite(modes...)
	for _, c := range []struct {
		args []string
		exit int
		well string // output about a plugin that works
	}{
		{[]string{"plugin", "ls"}, failure.ExitOK, "effect"},
		{[]string{"doctor"}, failure.ExitError, "effect 0.1.0"},
		{[]string{"config", "check"}, failure.ExitUsage, ""},
		{[]string{"add", "hang-describe", "x"}, failure.ExitError, ""},
		{[]string{"run", "hang-validate", "x"}, failure.ExitError, ""},
		{[]string{"run", "hang-describe", "--help"}, failure.ExitOK, ""},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel() // it waits for plugins that hang
			p := s.start(append([]string{"--config", s.config}, c.args...)...)
			s.ends(p, c.exit)
			text := p.stdout.String() + p.stderr.String()
			named := []string{c.args[min(1, len(c.args)-1)]}
			if len(c.args) < 3 {
				named = slices.Clone(modes)
			}
			if c.args[0] == "plugin" { // it only reads the descriptions
				named = slices.DeleteFunc(named, func(mode string) bool {
					return mode == "hang-validate" || mode == "hang-open" || mode == "open"
				})
			}
			if c.args[0] == "config" { // config opens no ledger
				named = slices.DeleteFunc(named, func(mode string) bool { return mode == "hang-open" || mode == "open" })
			}
			for _, name := range named {
				if !strings.Contains(text, fmt.Sprintf("plugin %s (", name)) {
					t.Errorf("plugin %s is not named", name)
				}
			}
			if !strings.Contains(text, c.well) || strings.ContainsAny(text, "\x1b\u202e") {
				t.Errorf("%q", text)
			}
		})
	}
}
