//go:build unix

package pluginproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// acts are the roles that the test binary can play, by its first argument.
var acts = map[string]func(){
	"actor": func() { sdk.Serve(actor()) },
	"noop":  func() { sdk.Serve(noop()) },
	// The kernel does not kill this plugin when its host dies, so it has to notice the end of stdin.
	"outlives-parent": func() { outliveParent(); sdk.Serve(noop()) },
	// This plugin does not notice the end of stdin, so the kernel has to kill it.
	"deaf": func() { os.Stdin = endless(); sdk.Serve(noop()) },

	"junk":     func() { fmt.Println("loading model…"); sdk.Serve(noop()) },
	"endless":  func() { os.Stdout.Write(bytes.Repeat([]byte("x"), 1<<20)); select {} },
	"silent":   func() { select {} },
	"protocol": func() { handshake(2); select {} },
	"dies":     func() { fmt.Fprintln(os.Stderr, "no such model"); os.Exit(7) },
	"dies-telling": func() {
		fmt.Fprintln(os.Stderr, "loading\npanic: no such tag\n\ngoroutine 1:\n"+strings.Repeat("frame 9\n", 20))
		os.Exit(7)
	},
	"dies-after-handshake": func() {
		handshake(wire.Version)
		fmt.Fprintln(os.Stderr, "too late")
		os.Exit(8)
	},
	"plain": func() { os.Unsetenv("PLUGIN_CLIENT_CERT"); sdk.Serve(noop()) },
	"newer": serveNewer,
	"rogue": serveRogue,
	"host":  beHost,
}

// handshake prints a handshake line with an address without a listener.
func handshake(version int) {
	fmt.Printf("1|%d|unix|%s/missing|grpc|\n", version, os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
}

// endless is a pipe whose reads block for ever.
func endless() *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	keep = w
	return r
}

var keep *os.File // the open end of endless: the garbage collector would close it

// beHost starts a plugin, prints its pid, and waits to be killed.
func beHost() {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	p, err := pluginproc.Start(context.Background(), pluginproc.Spec{Path: path, Args: os.Args[2:3],
		SocketDir: os.Args[3]})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.PID())
	select {}
}

func noop() *sdk.Plugin {
	return sdk.New("noop", "0.1.0", func(_ context.Context, _ *struct{}, _ sdk.Item[pathIn]) (struct{}, error) {
		return struct{}{}, nil
	})
}

type pathIn struct {
	Path string `json:"path" input:"file"`
}

// script is a payload with orders for the plugin.
type script struct {
	Do   string `json:"do" schema:"required"`
	Text string `json:"text"`
}

type actorConfig struct {
	Greeting string        `json:"greeting" default:"hello" schema:"minLength=1"`
	Patience time.Duration `json:"patience" default:"1m"`
	Token    string        `json:"token" secret:"true"`
	DieLate  bool          `json:"die_late"`
}

func (c *actorConfig) Validate() error {
	if c.Greeting == "no" {
		return errors.New("greeting: not that one")
	}
	return nil
}

func (c *actorConfig) Open(context.Context) error {
	fmt.Fprintln(os.Stderr, "opened")
	return nil
}

func (c *actorConfig) Close() error {
	fmt.Fprintln(os.Stderr, "closed")
	if c.DieLate {
		os.Exit(5)
	}
	return nil
}

// actor follows the orders of its items.
func actor() *sdk.Plugin {
	p := sdk.New("actor", "0.1.0", act)
	p.Concurrency = 2
	return p
}

func act(ctx context.Context, cfg *actorConfig, it sdk.Item[script]) (string, error) {
	switch it.Payload.Do {
	case "greet":
		return cfg.Greeting + cfg.Token, nil
	case "crash":
		fmt.Fprintln(os.Stderr, "last words")
		go panic("boom")
		select {}
	case "wait":
		fmt.Fprintln(os.Stderr, "waiting", it.ID)
		<-ctx.Done()
		return "", ctx.Err()
	case "finish-late":
		fmt.Fprintln(os.Stderr, "waiting", it.ID)
		time.Sleep(200 * time.Millisecond) // the work
		return "late", nil
	case "hang":
		fmt.Fprintln(os.Stderr, "waiting", it.ID)
		select {}
	case "environ":
		return strings.Join(os.Environ(), "\n"), nil
	case "flood-stderr":
		floodStderr()
	case "flood-stdout":
		line := append(bytes.Repeat([]byte("x"), 100<<10), '\n')
		for range 100 {
			if _, err := syscall.Write(1, line); err != nil {
				return "", err
			}
		}
	case "print":
		fmt.Println("printed")
	case "grandchild":
		return grandchild(it.Payload.Text)
	}
	return "", nil
}

func floodStderr() {
	fmt.Fprintln(os.Stderr, `{"@message":1}`)
	fmt.Fprintln(os.Stderr, `{"@level":1,"@timestamp":false}`)
	for range 100_000 {
		fmt.Fprintln(os.Stderr, "a line that is not worth reading, one hundred thousand times over and over again, about "+
			"100 bytes")
	}
	fmt.Fprintln(os.Stderr, strings.Repeat("y", 1<<20))
	fmt.Fprint(os.Stderr, "\xff\xfe not text\n")
}

// grandchild starts a process that holds our pipes; in a session of its own if escape is "escape".
func grandchild(escape string) (string, error) {
	cmd := exec.Command("sleep", "600")
	cmd.Stdout, cmd.Stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: escape == "escape"}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	return fmt.Sprint(cmd.Process.Pid), nil
}

// rogue is a plugin that does not keep to the protocol.
type rogue struct {
	wire.UnimplementedPluginServer
	plugin.NetRPCUnsupportedPlugin
}

func (r *rogue) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	wire.RegisterPluginServer(s, r)
	return nil
}

func (r *rogue) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no client")
}

// Process answers the first item with a message beyond all limits, or ends the stream.
func (r *rogue) Process(s wire.Plugin_ProcessServer) error {
	if err := s.Send(&wire.PluginMessage{Credits: 1}); err != nil {
		return err
	}
	m, err := s.Recv()
	if err != nil {
		return err
	}
	if string(m.Items[0].Payload) == "leave" {
		return nil
	}
	if err := s.Send(&wire.PluginMessage{Results: []*wire.Result{{Id: 1, Output: make([]byte, 17<<20)}}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func serveRogue() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: {wire.Service: &rogue{}}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}
