//go:build unix

package conformance_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

type config struct {
	Greeting string        `json:"greeting" default:"hello"`
	Patience time.Duration `json:"patience"`
	Token    string        `json:"token" secret:"true"`
}

type in struct {
	Name string `json:"name" input:"line"`
}

// slowly is how long the second example takes.
var slowly = 10 * time.Millisecond

// greeter is a plugin without defects.
func greeter() *sdk.Plugin {
	p := sdk.New("greeter", "0.1.0", greet)
	p.Concurrency = 64
	p.Emits = []string{"greeting"}
	p.Examples = []sdk.Example{{Payload: in{"ada"}, Output: "hello ada"}, {Doc: "takes a while", Payload: in{"slow"}}}
	return p
}

func greet(ctx context.Context, cfg *config, it sdk.Item[in]) (string, error) {
	it.Progress(1, 2, "words")
	if it.Payload.Name == "slow" {
		select {
		case <-time.After(slowly):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return cfg.Greeting + " " + it.Payload.Name, it.Emit(sdk.Child{Kind: "greeting", Key: it.Payload.Name})
}

// anything is a plugin that accepts any object as payload. It exits if the payload is not the one of its example.
func anything() *sdk.Plugin {
	type config struct {
		More map[string]any `json:"more"`
	}
	p := sdk.New("anything", "0.1.0", func(_ context.Context, _ *config, it sdk.Item[map[string]any]) (int, error) {
		if len(it.Payload) != 2 {
			os.Exit(7)
		}
		return len(it.Payload), nil
	})
	p.Examples = []sdk.Example{{Payload: map[string]any{"a": 1, "b": "two"}, Output: 2}}
	return p
}

// defective is the greeter with one defect.
type defective struct {
	wire.PluginServer
	defect  string
	asked   atomic.Int64
	checked atomic.Bool // a config was validated
	drained atomic.Bool
}

func (d *defective) Describe(ctx context.Context, req *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	res, err := d.PluginServer.Describe(ctx, req)
	switch d.defect {
	case "moody":
		res.Doc = fmt.Sprint(d.asked.Add(1))
	case "unique":
		res.Doc = fmt.Sprint(os.Getpid())
	case "name":
		res.Name = "Greeter"
	case "renamed":
		res.Name = "somebody-else"
	case "novel":
		res.Doc = strings.Repeat("x", pluginproc.MaxDoc+1)
	case "wide":
		var fields []string
		for i := range pluginproc.MaxFields + 1 {
			fields = append(fields, fmt.Sprintf(`"f%d":{}`, i))
		}
		res.OutputSchema = []byte(`{"properties":{` + strings.Join(fields, ",") + `}}`)
	case "version":
		res.Version = "new"
	case "idle":
		res.Concurrency = 0
	case "kind":
		res.Emits = append(res.Emits, "No Kind")
	case "schema":
		res.OutputSchema = []byte(`{"type":7}`)
	case "input":
		res.Input.Field = "nome"
	case "match":
		res.Match = []string{"["}
	case "secret unknown":
		res.Secrets = append(res.Secrets, "greeting")
	case "secret unsaid":
		res.Secrets = nil
	case "example long":
		res.InputSchema = bytes.Replace(res.InputSchema, []byte(`"type":"string"`), []byte(`"type":"string","maxLength":3`),
			1)
	case "example payload":
		res.Examples = append(res.Examples, &wire.Example{Payload: []byte(`{"name":7}`)})
	case "example output":
		res.Examples[0].Output = []byte(`"bye ada"`)
	case "example misfit":
		res.Examples[0].Output = []byte(`7`)
	}
	return res, err
}

func (d *defective) Configure(ctx context.Context, req *wire.ConfigureRequest) (*wire.ConfigureResponse, error) {
	only := req.ValidateOnly
	switch d.defect {
	case "credulous":
		if only {
			return &wire.ConfigureResponse{}, nil
		}
	case "nameless":
		res, err := d.PluginServer.Configure(ctx, req)
		for _, p := range res.GetProblems() {
			p.Field = ""
		}
		return res, err
	case "rude":
		res, err := d.PluginServer.Configure(ctx, req)
		if len(res.GetProblems()) > 0 {
			return nil, errors.New("no")
		}
		return res, err
	case "gossip":
		fmt.Fprintln(os.Stderr, "token is", req.Secrets["token"])
	case "tattler":
		res, err := d.PluginServer.Configure(ctx, req)
		for _, p := range res.GetProblems() {
			p.Message += req.Secrets["token"]
		}
		return res, err
	case "daemon":
		if !only {
			startDaemon()
		}
	case "keeps":
		if !only && d.checked.Load() {
			return nil, errors.New("configured already")
		}
		d.checked.Store(true)
	case "strict":
		if len(req.ProtoReflect().GetUnknown()) > 0 {
			return nil, errors.New("unknown field")
		}
	}
	return d.PluginServer.Configure(ctx, req)
}

func (d *defective) CheckHealth(ctx context.Context, req *wire.CheckHealthRequest) (*wire.CheckHealthResponse, error) {
	if d.defect == "no health" {
		return nil, errors.New("not implemented")
	}
	return d.PluginServer.CheckHealth(ctx, req)
}

func (d *defective) Process(s wire.Plugin_ProcessServer) error {
	return d.PluginServer.Process(&altered{Plugin_ProcessServer: s, d: d, withheld: map[int64]bool{},
		refused: map[int64]bool{}})
}

func (d *defective) Drain(ctx context.Context, req *wire.DrainRequest) (*wire.DrainResponse, error) {
	d.drained.Store(true)
	if d.defect == "stubborn" {
		os.Stderr.WriteString("stays\n")
		select {}
	}
	return d.PluginServer.Drain(ctx, req)
}

// startDaemon starts a process outside of the plugin's process group, and leaves it running.
func startDaemon() {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// bePlugin serves the plugin without sdk.Serve, as a plugin in another language does: without the controller and broker
// of go-plugin.
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
	if defect == "drops" {
		slowly = 200 * time.Millisecond // the item must still run when the plugin is drained
	}
	d := &defective{PluginServer: sdk.Processor(greeter()), defect: defect}
	go d.watchStdin()
	if err := d.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (d *defective) watchStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	switch {
	case d.defect == "orphan" && !d.drained.Load(), d.defect == "stays" && d.drained.Load():
		return
	case d.defect == "chatty":
		fmt.Println("good bye")
	}
	os.Exit(0)
}

func (d *defective) serve() error {
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage)}
	if d.defect == "small" {
		options[0] = grpc.MaxRecvMsgSize(512 << 10)
	}
	cert := ""
	switch client := os.Getenv("PLUGIN_CLIENT_CERT"); {
	case client != "":
		config, own, err := tlsConfig(client)
		if err != nil {
			return err
		}
		if d.defect == "trusting" {
			config.ClientAuth = tls.RequestClientCert
		}
		cert = own
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	case d.defect == "only TLS":
		return errors.New("no certificate")
	}
	dir := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	if d.defect == "elsewhere" {
		dir = filepath.Dir(dir)
	}
	address := filepath.Join(dir, fmt.Sprintf("p%d", os.Getpid()))
	listener, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	server, life := grpc.NewServer(options...), health.NewServer()
	life.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, life)
	wire.RegisterPluginServer(server, d)
	version := wire.Version
	if d.defect == "newest" && os.Getenv("PLUGIN_PROTOCOL_VERSIONS") != "1" {
		version = 99
	}
	fmt.Printf("1|%d|unix|%s|grpc|%s\n", version, address, cert)
	return server.Serve(listener)
}

// tlsConfig trusts one client only. The text is the server's certificate for the handshake line.
func tlsConfig(client string) (*tls.Config, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	template := &x509.Certificate{
		DNSNames: []string{"localhost"}, SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", err
	}
	block, _ := pem.Decode([]byte(client))
	trusted, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, "", err
	}
	pool := x509.NewCertPool()
	pool.AddCert(trusted)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
	}, base64.RawStdEncoding.EncodeToString(der), nil
}

// altered is a stream that changes the plugin's messages according to the defect.
type altered struct {
	wire.Plugin_ProcessServer
	d        *defective
	withheld map[int64]bool // ids without a result
	refused  map[int64]bool // ids of what is no JSON
	files    []*os.File     // leaked
	memory   [][]byte       // leaked
}

func (a *altered) Send(m *wire.PluginMessage) error {
	m = proto.CloneOf(m)
	var results []*wire.Result
	for _, r := range m.Results {
		if !a.d.withholds(r, a) {
			a.alter(r)
			results = append(results, r)
		}
	}
	m.Results = results
	switch a.d.defect {
	case "twice":
		if len(m.Results) > 1 {
			m.Results = append(m.Results, m.Results[0])
		}
	case "miser":
		m.Credits = 0
	case "spent": // its first grant is its only one
		if len(m.Results) > 0 {
			m.Credits = 0
		}
	case "ghost":
		for _, p := range m.Progress {
			p.Id += 1000
		}
	case "crash":
		for _, r := range m.Results {
			if r.Outcome == wire.Result_OUTCOME_DONE {
				fmt.Fprintln(os.Stderr, "last words")
				os.Exit(9)
			}
		}
	}
	return a.Plugin_ProcessServer.Send(m)
}

func (d *defective) withholds(r *wire.Result, a *altered) bool {
	switch d.defect {
	case "mute":
		return true
	case "drops":
		return d.drained.Load()
	case "deaf", "slow to time out":
		return a.withheld[r.Id]
	}
	return false
}

func (a *altered) alter(r *wire.Result) {
	done := r.Outcome == wire.Result_OUTCOME_DONE
	switch a.d.defect {
	case "retries":
		r.Final = false
	case "other code":
		if r.Code == "payload" {
			r.Code = "bad_payload"
		}
	case "no lock":
		r.LockId = nil
	case "attempts":
		r.Attempt++
	case "shouts":
		if done {
			r.Code = "All Is Well"
		}
	case "smuggles":
		for _, c := range r.Emit {
			c.Kind = "contraband"
		}
	case "wrong output":
		if done && string(r.Output) != `"hello ada"` {
			r.Output = []byte(`{"not":"text"}`)
		}
	case "not twice":
		if r.Attempt == 2 {
			r.Outcome, r.Code, r.Error = wire.Result_OUTCOME_FAILED, "exists", "is there already"
		}
	case "blames":
		if r.Outcome == wire.Result_OUTCOME_CANCELLED {
			r.Outcome, r.Error = wire.Result_OUTCOME_FAILED, "interrupted"
		}
	case "leaks files":
		if f, err := os.Open(os.DevNull); err == nil {
			a.files = append(a.files, f)
		}
	case "leaks memory":
		leak := make([]byte, 768<<10) // one round leaks more than steadyMemory, since a slow machine does only two
		for i := range leak {
			leak[i] = byte(i)
		}
		a.memory = append(a.memory, leak)
	}
}

func (a *altered) Recv() (*wire.HostMessage, error) {
	m, err := a.Plugin_ProcessServer.Recv()
	if err != nil {
		return m, err
	}
	for _, it := range m.Items {
		if it.TimeoutMs > 0 && a.d.defect == "slow to time out" {
			a.withheld[it.Id] = true
		}
		if !json.Valid(it.Payload) {
			a.refused[it.Id] = true
		}
	}
	for _, c := range m.Cancels {
		switch {
		case a.d.defect == "talkative" && a.refused[c.Id] && c.Reason == wire.Cancel_REASON_LEASE_LOST:
			err = a.Plugin_ProcessServer.Send(&wire.PluginMessage{Results: []*wire.Result{{Id: c.Id, Attempt: c.Attempt}}})
		case a.d.defect == "deaf" && c.Id > 2 && c.Id < 4711:
			a.withheld[c.Id] = true
		}
	}
	return m, err
}
