//go:build unix

package pluginproc_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// future gives a message a field that only a later version of the protocol knows.
func future(m proto.Message) {
	field := protowire.AppendTag(nil, 1000, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(field, "from the future"))
}

// newer is a plugin made for a later ledgerd: it knows this protocol and the next, and in this one fields
// and features that were added.
type newer struct {
	plugin.NetRPCUnsupportedPlugin
	wire.PluginServer
}

func serveNewer() {
	set := plugin.PluginSet{wire.Service: &newer{PluginServer: sdk.Processor(actor())}}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: set, wire.Version + 1: {}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}

func (n *newer) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	wire.RegisterPluginServer(s, n)
	return nil
}

func (n *newer) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no client")
}

func (n *newer) Describe(ctx context.Context, req *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	d, err := n.PluginServer.Describe(ctx, req)
	if err == nil {
		d.Features = append(d.Features, "telepathy")
		future(d)
	}
	return d, err
}

func (n *newer) Process(s wire.Plugin_ProcessServer) error {
	return n.PluginServer.Process(&newerStream{s})
}

type newerStream struct{ wire.Plugin_ProcessServer }

func (s *newerStream) Send(m *wire.PluginMessage) error {
	future(m)
	for _, r := range m.Results {
		future(r)
	}
	return s.Plugin_ProcessServer.Send(m)
}

// A side ignores fields and features that were added within its version of the protocol: a newer plugin works with this
// host, and this SDK with a newer host.
func TestNewerSides(t *testing.T) {
	for _, act := range []string{"newer", "actor"} {
		t.Run(act, func(t *testing.T) {
			p, err := pluginproc.Start(t.Context(), self(t, act))
			must.OK(t, err)
			t.Cleanup(p.Kill)
			describe := &wire.DescribeRequest{HostVersion: "v99.0.0", HostFeatures: []string{"telepathy"}}
			configure := &wire.ConfigureRequest{Config: []byte(`{"greeting":"good day"}`)}
			item := &wire.Item{Id: 1, Attempt: 1, Kind: "actor", Payload: []byte(`{"do":"greet"}`), LockId: []byte("lock")}
			for _, m := range []proto.Message{describe, configure, item} {
				future(m)
			}
			d, err := p.Describe(t.Context(), describe)
			if err != nil || d.Name != "actor" || slices.Contains(d.Features, "telepathy") != (act == "newer") {
				t.Fatal(d, err)
			}
			if problems, err := p.Configure(t.Context(), configure); err != nil || len(problems) > 0 {
				t.Fatal(problems, err)
			}
			results := make(chan *wire.Result, 1)
			stream, err := p.Open(pluginproc.Events{Results: func(all []*wire.Result) { results <- all[0] }})
			if err == nil {
				_, err = stream.WaitCredits(t.Context())
			}
			if err == nil {
				err = stream.Send([]*wire.Item{item})
			}
			must.OK(t, err)
			select {
			case r := <-results:
				if string(r.Output) != `"good day"` || r.Outcome != wire.Result_OUTCOME_DONE {
					t.Error(r)
				}
			case <-time.After(patience):
				t.Fatal("no result")
			}
		})
	}
}
