package sdk

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// pipe is a stream without a connection.
type pipe struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *wire.HostMessage
	out chan *wire.PluginMessage
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Recv() (*wire.HostMessage, error) {
	select {
	case m, ok := <-p.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func (p *pipe) Send(m *wire.PluginMessage) error {
	select {
	case p.out <- proto.CloneOf(m): // the sender uses its slices again
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// fatal is the part of testing.TB and rapid.T that the helpers need.
type fatal interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// link is a plugin under test and its host.
type link struct {
	t       fatal
	pipe    *pipe
	server  *server
	served  chan error
	cancel  context.CancelFunc
	credits int
	results map[int64]*wire.Result
	reports []*wire.Progress
	largest int // bytes of a message
}

func serve(t fatal, p *Plugin, req *wire.ConfigureRequest) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		t: t, server: newServer(p), served: make(chan error, 1), cancel: cancel, results: map[int64]*wire.Result{},
		pipe: &pipe{ctx: ctx, in: make(chan *wire.HostMessage), out: make(chan *wire.PluginMessage)},
	}
	res, err := l.server.Configure(ctx, req)
	if err != nil || len(res.Problems) > 0 {
		t.Fatal(res.GetProblems(), err)
	}
	go func() { l.served <- l.server.Process(l.pipe) }()
	return l
}

// take handles one message of the plugin.
func (l *link) take(m *wire.PluginMessage) {
	l.credits += int(m.Credits)
	l.reports = append(l.reports, m.Progress...)
	l.largest = max(l.largest, proto.Size(m))
	for _, r := range m.Results {
		if l.results[r.Id] != nil {
			l.t.Fatalf("item %d has two results", r.Id)
		}
		l.results[r.Id] = r
	}
}

// send sends items as the credits allow.
func (l *link) send(items ...*wire.Item) {
	for len(items) > 0 {
		n := min(l.credits, len(items))
		if n == 0 {
			l.take(<-l.pipe.out)
			continue
		}
		select {
		case l.pipe.in <- &wire.HostMessage{Items: items[:n]}:
			l.credits -= n
			items = items[n:]
		case m := <-l.pipe.out:
			l.take(m)
		}
	}
}

func (l *link) cancelItem(id int64, reason wire.Cancel_Reason) {
	for sent := false; !sent; {
		select {
		case l.pipe.in <- &wire.HostMessage{Cancels: []*wire.Cancel{{Id: id, Attempt: 1, Reason: reason}}}:
			sent = true
		case m := <-l.pipe.out:
			l.take(m)
		}
	}
}

// until takes messages until there are n results.
func (l *link) until(n int) {
	for len(l.results) < n {
		l.take(<-l.pipe.out)
	}
}

// close ends the stream as a host does, and gives what Process returned.
func (l *link) close() error {
	close(l.pipe.in)
	for {
		select {
		case m := <-l.pipe.out:
			l.take(m)
		case err := <-l.served:
			l.cancel()
			return err
		}
	}
}

func item(id int64, payload string) *wire.Item {
	return &wire.Item{
		Id: id, Attempt: 1, Kind: "p", Key: fmt.Sprint(id), Payload: []byte(payload), LockId: fmt.Appendf(nil, "lock%d", id),
	}
}
