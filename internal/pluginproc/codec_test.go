//go:build unix

package pluginproc

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// badText is a message in which every occurrence of "BAD" is a byte that no UTF-8 has.
func badText(t *testing.T, m proto.Message) mem.BufferSlice {
	t.Helper()
	raw, err := proto.Marshal(m)
	must.OK(t, err)
	for i := 0; i+3 <= len(raw); i++ {
		if string(raw[i:i+3]) == "BAD" {
			copy(raw[i:], "\xff\xfe\xfd")
		}
	}
	return mem.BufferSlice{mem.SliceBuffer(raw)}
}

// One bad byte in a result leaves the other results of the message as they are.
func TestBadText(t *testing.T) {
	sent := &wire.PluginMessage{Credits: 3, Results: []*wire.Result{
		{Id: 1, Outcome: wire.Result_OUTCOME_DONE, Output: []byte(`"fine"`)},
		{Id: 2, Error: "no BAD thing", Log: "BAD", Output: []byte("BAD")},
		{Id: 3, Emit: []*wire.Child{{Kind: "note", Key: "kBADy"}, {Kind: "note", Key: "good"}}},
	}}
	got := new(wire.PluginMessage)
	must.OK(t, newCodec().Unmarshal(badText(t, sent), got))
	want := proto.CloneOf(sent)
	want.Results[1].Error, want.Results[1].Log, want.Results[1].Output = "no \uFFFD thing", "\uFFFD",
		[]byte("\xff\xfe\xfd")
	want.Results[2].Emit[0].Key = "k\x00y"
	if !proto.Equal(want, got) {
		t.Errorf("got %v, want %v", got, want)
	}
	broken := mem.BufferSlice{mem.SliceBuffer(protowire.AppendTag(nil, 1, protowire.BytesType))}
	if err := newCodec().Unmarshal(broken, new(wire.PluginMessage)); err == nil {
		t.Error("half a message was taken")
	}
}

func FuzzMendTexts(f *testing.F) {
	f.Add([]byte("\x12\x04\x32\x02\xff\xfe"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := (*wire.PluginMessage)(nil).ProtoReflect().Descriptor()
		mended, ok := mendTexts(raw, d)
		if !ok {
			return
		}
		if again, ok := mendTexts(mended, d); !ok || string(again) != string(mended) {
			t.Errorf("%q is mended to %q", mended, again)
		}
	})
}
