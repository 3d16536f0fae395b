package sdktest

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// local is a plugin in this process. The protocol is the same, over a pipe in memory.
type local struct {
	server *grpc.Server
	conn   *grpc.ClientConn
	rpc    wire.PluginClient
	stream *pluginproc.Stream
	once   sync.Once
	done   chan struct{}
}

func startLocal(p *sdk.Plugin) (*local, error) {
	listener := bufconn.Listen(1 << 20)
	l := &local{done: make(chan struct{})}
	l.server = grpc.NewServer(grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage))
	wire.RegisterPluginServer(l.server, sdk.Processor(p))
	go func() { _ = l.server.Serve(listener) }() // ends with Stop
	var err error
	l.conn, err = grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)))
	if err != nil {
		l.server.Stop()
		return nil, err
	}
	l.rpc = wire.NewPluginClient(l.conn)
	return l, nil
}

func (l *local) Configure(ctx context.Context, req *wire.ConfigureRequest) ([]*wire.Problem, error) {
	res, err := l.rpc.Configure(ctx, req)
	return res.GetProblems(), err
}

func (l *local) Open(e pluginproc.Events) (*pluginproc.Stream, error) {
	var err error
	l.stream, err = pluginproc.OpenStream(l.rpc, e)
	return l.stream, err
}

func (l *local) Stop(ctx context.Context, grace time.Duration) []int64 {
	res, err := l.rpc.Drain(ctx, &wire.DrainRequest{GraceMs: grace.Milliseconds()})
	if err == nil && l.stream != nil && len(res.Unfinished) == 0 { // else the stream does not end
		l.stream.Close()
		<-l.stream.Ended()
	}
	l.Kill()
	return res.GetUnfinished()
}

// Kill ends the connection; functions that do not stop go on.
func (l *local) Kill() {
	l.once.Do(func() {
		_ = l.conn.Close() // it has been closed, or is now
		l.server.Stop()
		close(l.done)
	})
}

func (l *local) Done() <-chan struct{} { return l.done }
func (l *local) Err() error            { return nil }
