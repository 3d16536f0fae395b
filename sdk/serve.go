package sdk

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Started reports whether this process was started by ledgerd as a plugin. A program that contains
// plugins and has other uses as well calls Started before anything else, and Serve if it returns true.
func Started() bool { return os.Getenv(wire.CookieKey) == wire.CookieValue }

// ballast is never touched, so it takes addresses and no memory. The garbage collector counts it as live.
var ballast []byte

// LeaveHeapRoom lets the heap of this process grow to twice the live heap and 16 MiB more before it is collected. The
// live data of ledgerd and of a plugin is mostly small, and garbage is made with every item. By Go's own rule, a
// quarter of the time of a plugin's process would go into collections. It does nothing if the environment has GOGC. The
// ballast counts against GOMEMLIMIT, so it is at most a sixteenth of that. Serve calls it.
func LeaveHeapRoom() {
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, min(16<<20, debug.SetMemoryLimit(-1)/16))
	}
}

// Serve serves p to the ledgerd that started this process, and exits when that is over. Main
// calls it; other programs call it after Started.
func Serve(p *Plugin) {
	if _, err := p.describe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	LeaveHeapRoom()
	life := &life{server: newServer(p), stderr: os.Stderr}
	go life.watchStdin()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: {wire.Service: service{life: life}}},
		TLSProvider:      serverTLS,
		GRPCServer:       life.newGRPC,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr}),
	})
	life.exit(0)
}

// serverTLS is the plugin's side of TLS; nil if the host does not ask for TLS. It accepts only the host's certificate.
// It adds the plugin's certificate to the handshake line, because go-plugin adds only certificates that it made itself.
func serverTLS() (*tls.Config, error) {
	host := os.Getenv(wire.ClientKey)
	if host == "" {
		return nil, nil
	}
	hosts := x509.NewCertPool()
	if !hosts.AppendCertsFromPEM([]byte(host)) {
		return nil, errors.New(wire.ClientKey + " holds no certificate")
	}
	ours, err := wire.NewCertificate()
	if err != nil {
		return nil, err
	}
	line, printed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout := os.Stdout
	os.Stdout = printed
	go func() {
		defer line.Close()
		if text, err := bufio.NewReader(line).ReadString('\n'); err == nil {
			fmt.Fprintf(stdout, "%s%s\n", strings.TrimSuffix(text, "\n"),
				base64.RawStdEncoding.EncodeToString(ours.Pair.Certificate[0]))
		}
	}()
	return &tls.Config{Certificates: []tls.Certificate{ours.Pair}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: hosts, MinVersion: tls.VersionTLS12}, nil
}

// life is the process of a plugin from handshake to exit.
type life struct {
	server *server
	stderr *os.File // the real one
	grpc   *grpc.Server
	begun  sync.Once // for begin
	leave  sync.Once // for exit
}

// service registers the protocol with go-plugin.
type service struct {
	plugin.NetRPCUnsupportedPlugin
	life *life
}

func (s service) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	wire.RegisterPluginServer(g, s.life.server)
	return nil
}

func (s service) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is no client")
}

func (l *life) newGRPC(opts []grpc.ServerOption) *grpc.Server {
	l.grpc = grpc.NewServer(append(opts,
		grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
			error) {
			l.begun.Do(l.begin)
			return next(ctx, req)
		}))...)
	return l.grpc
}

// handshakeVariables are go-plugin's and ours.
var handshakeVariables = []string{
	wire.CookieKey, "PLUGIN_PROTOCOL_VERSIONS", wire.ClientKey, "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT",
	"PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_UNIX_SOCKET_GROUP", "PLUGIN_MULTIPLEX_GRPC",
}

// begin runs once, when go-plugin is through with the handshake. It takes back os.Stdout and os.Stderr: go-plugin sends
// them over the connection, so a process that dies would lose its last words. Both lead to the real stderr; the real
// stdout is not ours. And it forgets the handshake's variables: a program that the plugin starts, perhaps ledgerd, is
// no plugin.
func (l *life) begin() {
	os.Stdout, os.Stderr = l.stderr, l.stderr
	for _, name := range handshakeVariables {
		_ = os.Unsetenv(name) // fails for impossible names only
	}
	go l.watchSignals()
}

// Bounds of the end.
const (
	orphanTime = 500 * time.Millisecond // for functions to stop when ledgerd is gone
	flushTime  = 500 * time.Millisecond // for the last results to leave
)

// watchStdin exits when ledgerd is gone: it holds the other end of stdin as long as it lives.
func (l *life) watchStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
	time.AfterFunc(orphanTime, func() { os.Exit(1) })
	l.server.drain(context.Background(), 0)
	l.exit(1)
}

// watchSignals takes SIGTERM. (SIGINT is go-plugin's: it ignores it.) A service manager may send SIGTERM to all
// processes at once: begun items are finished, the rest is handed back.
func (l *life) watchSignals() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	go func() {
		<-signals // a second one: now
		l.finish(0)
	}()
	l.finish(forever)
}

// finish gives begun items the grace to end, hands all others back, and ends the process.
func (l *life) finish(grace time.Duration) {
	l.server.drain(context.Background(), grace)
	time.AfterFunc(flushTime, func() { l.exit(0) })
	l.grpc.GracefulStop() // sends the last messages
	l.exit(0)
}

// forever is a grace that only the host ends.
const forever = 1 << 62

// exit closes the config and ends the process.
func (l *life) exit(code int) {
	l.leave.Do(func() {
		if err := l.server.close(); err != nil {
			fmt.Fprintln(l.stderr, "Close:", err)
		}
		os.Exit(code)
	})
	select {} // another goroutine ends the process
}
