package conformance_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// The test binary is a plugin, with the defect that its second argument names.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "plugin" {
		bePlugin(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

type config struct {
	Greeting string        `json:"greeting" default:"hello"`
	Patience time.Duration `json:"patience"`
	Token    string        `json:"token" secret:"true"`
}

type in struct {
	Name string `json:"name" input:"line"`
}

func greeter() *sdk.Plugin {
	p := sdk.New("greeter", "0.1.0", func(_ context.Context, cfg *config, it sdk.Item[in]) (string, error) {
		return cfg.Greeting + " " + it.Payload.Name, nil
	})
	p.Examples = []sdk.Example{{Payload: in{"ada"}, Output: "hello ada"}}
	return p
}

// defective is a plugin in which one thing is wrong.
type defective struct {
	wire.PluginServer
	plugin.NetRPCUnsupportedPlugin
	defect string
	asked  atomic.Int64
}

func (d *defective) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	wire.RegisterPluginServer(s, d)
	return nil
}

func (d *defective) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("no client")
}

func (d *defective) Describe(ctx context.Context, req *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	res, err := d.PluginServer.Describe(ctx, req)
	switch d.defect {
	case "moody":
		res.Doc = fmt.Sprint(d.asked.Add(1))
	case "name":
		res.Name = "Greeter"
	case "version":
		res.Version = "new"
	case "schema":
		res.InputSchema = []byte(`{"type":7}`)
	case "input":
		res.Input.Field = "nome"
	case "match":
		res.Match = []string{"["}
	case "example payload":
		res.Examples[0].Payload = []byte(`{}`)
	case "example output":
		res.Examples[0].Output = []byte(`"bye ada"`)
	case "secret unknown":
		res.Secrets = append(res.Secrets, "greeting")
	case "idle":
		res.Concurrency = 0
	}
	return res, err
}

func (d *defective) Configure(ctx context.Context, req *wire.ConfigureRequest) (*wire.ConfigureResponse, error) {
	switch d.defect {
	case "credulous":
		if req.ValidateOnly {
			return &wire.ConfigureResponse{}, nil
		}
	case "picky":
		return &wire.ConfigureResponse{Problems: []*wire.Problem{{Field: "greeting", Message: "no"}, {Field: "patience"}, {Field: "no_such_field_here"}}}, nil
	case "gossip":
		fmt.Fprintln(os.Stderr, "token is", req.Secrets["token"])
	case "once":
		req.ValidateOnly = false
	}
	return d.PluginServer.Configure(ctx, req)
}

func (d *defective) Process(s wire.Plugin_ProcessServer) error {
	return d.PluginServer.Process(&altered{Plugin_ProcessServer: s, defect: d.defect})
}

func (d *defective) Drain(ctx context.Context, req *wire.DrainRequest) (*wire.DrainResponse, error) {
	if d.defect == "stubborn" {
		os.Stderr.WriteString("stays\n")
		select {}
	}
	return d.PluginServer.Drain(ctx, req)
}

// altered is a stream on which results are not what they were.
type altered struct {
	wire.Plugin_ProcessServer
	defect string
}

func (a *altered) Send(m *wire.PluginMessage) error {
	m = proto.CloneOf(m)
	for _, r := range m.Results {
		switch a.defect {
		case "retries":
			r.Final = false
		case "no lock":
			r.LockId = nil
		case "attempts":
			r.Attempt++
		}
	}
	switch a.defect {
	case "twice":
		m.Results = append(m.Results, m.Results...)
	case "mute":
		m.Results = nil
	case "miser":
		m.Credits = 0
	case "crash":
		if len(m.Results) > 0 {
			os.Exit(9)
		}
	}
	return a.Plugin_ProcessServer.Send(m)
}

func (a *altered) Recv() (*wire.HostMessage, error) {
	m, err := a.Plugin_ProcessServer.Recv()
	if err == nil && a.defect == "talkative" {
		for _, c := range m.Cancels {
			err = a.Plugin_ProcessServer.Send(&wire.PluginMessage{Results: []*wire.Result{{Id: c.Id, Attempt: c.Attempt}}})
		}
	}
	return m, err
}

// bePlugin serves by hand what sdk.Serve would, as a plugin in another language does.
func bePlugin(defect string) {
	if !sdk.Started() {
		switch defect {
		case "by hand":
			fmt.Println("hello?")
		case "exits with 0":
			fmt.Fprintln(os.Stderr, "nothing to see")
		case "silent":
			os.Exit(1)
		default:
			fmt.Fprintln(os.Stderr, "this is a plugin")
			os.Exit(1)
		}
		return
	}
	if defect == "only TLS" && os.Getenv("PLUGIN_CLIENT_CERT") == "" {
		os.Exit(1)
	}
	if defect != "orphan" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	d := &defective{PluginServer: sdk.Processor(greeter()), defect: defect}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: {wire.Service: d}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}

func target(t *testing.T, defect string) conformance.Target {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Target{Spec: pluginproc.Spec{Path: path, Args: []string{"plugin", defect}}}
}

func check(t *testing.T, name, defect string) error {
	t.Helper()
	to := target(t, defect)
	for _, c := range conformance.Checks(to) {
		if c.Name == name {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if defect == "mute" || defect == "miser" {
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second) // it never answers
				defer cancel()
			}
			return c.Run(ctx, to)
		}
	}
	t.Fatalf("there is no check %q", name)
	return nil
}

func TestGoodPlugin(t *testing.T) {
	for _, c := range conformance.Checks(target(t, "none")) {
		if err := check(t, c.Name, "none"); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// Each check finds the defects that it is there for.
func TestDefects(t *testing.T) {
	tests := []struct{ check, defect, want string }{
		{"by hand", "by hand", "exits with 0, not 1"},
		{"by hand", "exits with 0", "exits with 0, not 1"},
		{"by hand", "silent", "says nothing"},
		{"describe", "moody", "second Describe"},
		{"describe", "name", `name "Greeter"`},
		{"describe", "version", `version "new"`},
		{"describe", "schema", "payload: schema"},
		{"describe", "input", `input "nome"`},
		{"describe", "match", `match "["`},
		{"describe", "example payload", "example 1: payload: name: is required"},
		{"describe", "secret unknown", `secret "greeting"`},
		{"describe", "idle", "concurrency is 0"},
		{"plain", "only TLS", "did not start"},
		{"config", "credulous", "is not refused"},
		{"config", "picky", "the config (validate_only=true) is refused"},
		{"config", "once", "configured already"},
		{"secrets", "gossip", "secret appears"},
		{"examples", "example output", `gives "hello ada", not "bye ada"`},
		{"examples", "crash", "exited with 9"},
		{"payload", "retries", "final false"},
		{"many", "twice", "has 2 results"},
		{"many", "no lock", "lock_id"},
		{"many", "attempts", "attempt 2"},
		{"many", "mute", "have no result"},
		{"many", "miser", "no credits"},
		{"cancel", "talkative", "item 1 has 2 results"},
		{"drain", "stubborn", "did not exit with 0"},
		{"orphan", "orphan", "lives on"},
	}
	for _, test := range tests {
		t.Run(test.check+"/"+test.defect, func(t *testing.T) {
			t.Parallel()
			if err := check(t, test.check, test.defect); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}
