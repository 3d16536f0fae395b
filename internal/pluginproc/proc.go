package pluginproc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Proc is one running plugin process.
type Proc struct {
	process *process
	dir     *socketDir
	log     *log
	client  *plugin.Client
	conn    *grpc.ClientConn
	rpc     wire.PluginClient

	mu       sync.Mutex
	stream   *Stream  // nil before Open
	stopping bool     // Drain or HangUp was called
	drained  *Drained // nil before Drain
	killed   bool     // Stop or Kill has sent it a signal
	fault    error    // why this package killed it by itself; nil if it did not
	emits    []string // see Emits

	done chan struct{}
	err  error // set before done is closed
}

// Start starts the program and returns when it has answered a health check. If it does not,
// the error is a *StartError and the process is gone. ctx bounds the start only.
func Start(ctx context.Context, spec Spec) (*Proc, error) {
	p, err := start(ctx, &spec)
	if se, ok := errors.AsType[*StartError](err); ok {
		se.Path = spec.Path
	}
	return p, err
}

func start(ctx context.Context, spec *Spec) (*Proc, error) {
	if err := NoPlugins(); err != nil {
		return nil, err
	}
	program, err := spec.check()
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(spec.StartTimeout, startTimeout)
	startCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	clientCert, err := wire.NewCertificate()
	if err != nil {
		return nil, &StartError{Step: StepStart, Err: err, Problem: "no certificate for its connection: " + err.Error()}
	}
	dir, err := newSocketDir(spec.SocketDir)
	if err != nil {
		return nil, err
	}
	log := &log{onLog: spec.OnLog}
	proc, err := newProcess(spec, program, log)
	if err != nil {
		dir.remove()
		return nil, &StartError{Step: StepStart, Err: err, Problem: err.Error()}
	}
	p := &Proc{process: proc, dir: dir, log: log, done: make(chan struct{})}
	p.client = plugin.NewClient(p.config(spec, timeout, clientCert))
	connected := make(chan error, 1)
	go func() { connected <- p.connect(startCtx) }()
	select {
	case err = <-connected:
	case <-startCtx.Done():
		proc.signal(syscall.SIGKILL) // connect returns when the process has ended
		err = <-connected
	}
	if err != nil {
		failed := p.explain(ctx, startCtx, spec, timeout, err)
		failed.Stderr = proc.tail.last(stderrLines)
		proc.signal(syscall.SIGKILL)
		if proc.number() > 0 {
			<-proc.exited
		}
		proc.close()
		p.release()
		log.close()
		return nil, failed
	}
	go p.watch()
	return p, nil
}

// config returns a new configuration for each start, because go-plugin keeps state in it.
func (p *Proc) config(spec *Spec, timeout time.Duration, clientCert *wire.Certificate) *plugin.ClientConfig {
	c := &plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: {wire.Service: connection{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			p.process.cmd.Env = append(p.process.cmd.Env, cmd.Env...)
			return p.process, nil
		},
		SkipHostEnv:      true,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.dir.path},
		StartTimeout:     timeout + time.Second, // startCtx ends the start before that
		// Output over the connection, of a plugin that was made with go-plugin alone.
		SyncStdout: newOutput("stdout", p.log.line, nil),
		SyncStderr: newOutput("stderr", p.log.line, nil),
		// With any other level go-plugin parses the plugin's output, and panics on some of it.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()),
			grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage))},
	}
	if !spec.NoMTLS {
		p.process.cmd.Env = append(p.process.cmd.Env, wire.ClientKey+"="+clientCert.PEM)
		c.TLSConfig = &tls.Config{ // go-plugin adds the certificate that the plugin prints to the roots
			Certificates: []tls.Certificate{clientCert.Pair}, RootCAs: x509.NewCertPool(), ServerName: "localhost",
			MinVersion: tls.VersionTLS12}
	}
	return c
}

// connection makes go-plugin return the gRPC connection itself.
type connection struct{ plugin.NetRPCUnsupportedPlugin }

func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the host serves nothing")
}

func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// connect starts the process and waits for the answer to a health check.
func (p *Proc) connect(ctx context.Context) error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(wire.Service)
	if err != nil {
		return err
	}
	p.conn = raw.(*grpc.ClientConn)
	p.rpc = wire.NewPluginClient(p.conn)
	return p.Ping(ctx)
}

// stderrLines is how many lines of stderr a StartError has.
const stderrLines = 5

// noTLS is the text of crypto/tls for an answer without TLS; gRPC keeps only the text of the error.
const noTLS = "first record does not look like a TLS handshake"

// explain finds the cause of a failed start. err is go-plugin's error.
func (p *Proc) explain(ctx, startCtx context.Context, spec *Spec, timeout time.Duration, err error) *StartError {
	if p.process.number() == 0 {
		return explainStart(spec.Path, err)
	}
	if over := p.process.exceeded(); over != nil {
		return &StartError{Step: StepStart, Err: over, Problem: over.Error(),
			Hint: "its limits are in the config: [plugins.NAME]"}
	}
	if bad := p.process.handshake(); bad != nil {
		bad.Hint += hintOfScript(spec.Path)
		return bad
	}
	if startCtx.Err() == nil {
		// The process may be ending; the way it ends explains more than err.
		select {
		case <-p.process.exited:
		case <-time.After(exitRead):
		}
	}
	se := &StartError{Step: StepHandshake, Err: err}
	ended := p.process.ended()
	because := "" // the cause in stderr: the last lines, in se.Stderr, may be only a stack
	if cause := Cause(p.process.tail.last(0)); cause != "" {
		because = ": " + cause
	}
	switch {
	case ctx.Err() != nil:
		se.Problem, se.Err = "the start was given up", context.Cause(ctx)
	case startCtx.Err() != nil:
		se.Problem = "it did not answer within " + timeout.String()
		se.Hint = "a plugin prints the handshake line first and loads things in Open; package sdk does so" + hintOfScript(spec.Path)
	case ended != "" && p.conn != nil:
		se.Step, se.Problem = StepConnect, "it "+ended+" right after the handshake"+because
	case ended != "":
		se.Problem = "it " + ended + " before the handshake" + because
	case strings.Contains(err.Error(), noTLS):
		se.Step, se.Problem = StepConnect, "it answers without TLS"
		se.Hint = "it was given a certificate in PLUGIN_CLIENT_CERT; for a language that cannot do TLS: mtls = false in " +
			"its table of the config (plugin run, plugin check: --no-mtls)"
	default:
		se.Step, se.Problem = StepConnect, err.Error()
	}
	return se
}

// watch waits for the end of the process, sets its cause, and closes done.
func (p *Proc) watch() {
	<-p.process.exited
	p.mu.Lock()
	stream := p.stream
	p.mu.Unlock()
	if stream != nil {
		// The connection is dead, so the stream ends after its last event. It does not if a child of the plugin has
		// inherited the connection.
		late := time.AfterFunc(exitRead, stream.Abort)
		<-stream.Ended()
		late.Stop()
	}
	p.release()
	p.log.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = p.whyKilled()
	inOrder := p.killed || p.stopping && p.process.state.Success()
	if p.fault != nil || !inOrder {
		p.err = p.crash()
	}
	close(p.done)
}

// whyKilled returns why the host killed the process, nil if it did not. streamEnded may have set fault although the
// process exited by itself or exceeded a limit, if it took longer than exitRead to end. So those causes come first. The
// caller holds mu.
func (p *Proc) whyKilled() error {
	if over := p.process.exceeded(); over != nil {
		return over
	}
	if p.process.state.Exited() && !errors.Is(p.fault, ErrTooLarge) {
		return nil
	}
	return p.fault
}

// crash describes the end of the process. The caller holds mu.
func (p *Proc) crash() *CrashError {
	e := &CrashError{PID: p.PID(), How: p.process.ended(), Code: p.process.state.ExitCode(),
		Stderr: p.process.tail.last(0), Err: p.fault}
	if ws, ok := p.process.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = int(ws.Signal())
	}
	return e
}

// release closes the connection and removes the socket's directory, after the process has ended.
func (p *Proc) release() {
	p.client.Kill() // closes the connection
	p.dir.remove()
}

// PID is the number of the process and of its group.
func (p *Proc) PID() int { return p.process.number() }

// Done is closed when the process has ended and its last result was delivered.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Err is the cause of the process's end. Call it after Done is closed. It is nil if Stop or Kill ended the process.
// Else it is a *CrashError, also if the process crashed during Stop.
func (p *Proc) Err() error { return p.err }

// State is the operating system's record of the ended process. Call it after Done is closed.
func (p *Proc) State() *os.ProcessState { return p.process.state }

// Left returns the PIDs of processes that the plugin had started outside its process group. They were killed after it.
// Call it after Done is closed. Outside of Linux there are none.
func (p *Proc) Left() []int { return p.process.left }

// Ping makes a health check, and returns an error if the process does not answer it before the end of ctx.
func (p *Proc) Ping(ctx context.Context) error {
	_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	return err
}

// Describe gets the plugin's description.
func (p *Proc) Describe(ctx context.Context, req *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	return p.rpc.Describe(ctx, req)
}

// Configure gives the plugin its config, or only has it validated. The problems are in the config; an error means that
// the call failed.
func (p *Proc) Configure(ctx context.Context, req *wire.ConfigureRequest) ([]*wire.Problem, error) {
	res, err := p.rpc.Configure(ctx, req)
	if err == nil && !req.ValidateOnly {
		p.mu.Lock()
		p.emits = res.GetEmits()
		p.mu.Unlock()
	}
	return res.GetProblems(), err
}

// Emits returns the kinds that the config permits to emit, beside those of Describe.
func (p *Proc) Emits() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.emits
}

// CheckHealth has the plugin check its dependencies. The problem is the plugin's answer, "" if there is none; an error
// means that the call failed.
func (p *Proc) CheckHealth(ctx context.Context) (problem string, err error) {
	res, err := p.rpc.CheckHealth(ctx, &wire.CheckHealthRequest{})
	return res.GetProblem(), err
}

// Open opens the stream of items, once, after Configure. If the stream breaks while the process lives, the process is
// killed, because it could not report its results.
func (p *Proc) Open(e Events) (*Stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != nil {
		return nil, errors.New("the stream is open already")
	}
	s, err := OpenStream(p.rpc, e)
	if err != nil {
		return nil, err
	}
	p.stream = s
	go func() {
		<-s.Ended()
		p.streamEnded(s.Err())
	}()
	return s, nil
}

// streamEnded kills a process whose stream ended too early. The stream also ends when the process dies, so it waits
// exitRead for that first.
func (p *Proc) streamEnded(err error) {
	p.mu.Lock()
	expected := p.stopping || p.killed
	p.mu.Unlock()
	if expected {
		return
	}
	if !errors.Is(err, ErrTooLarge) {
		select {
		case <-p.process.exited:
			return
		case <-time.After(exitRead):
		}
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	p.mu.Lock()
	p.fault = fmt.Errorf("its stream broke: %w", err)
	p.mu.Unlock()
	p.process.signal(syscall.SIGKILL)
}
