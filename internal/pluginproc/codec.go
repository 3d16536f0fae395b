package pluginproc

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped here
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// tolerant is the codec of protocol buffers with one exception: a text that is not UTF-8 does not make the
// whole message unreadable. One message carries the results of many items, and a stream that breaks costs
// all of them. So bad bytes are replaced: by U+FFFD in texts for people, and by NUL in identifiers of an
// emitted item: that item is invalid then.
type tolerant struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return tolerant{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (t tolerant) Unmarshal(data mem.BufferSlice, v any) error {
	err := t.CodecV2.Unmarshal(data, v)
	m, isMessage := v.(proto.Message)
	if err == nil || !isMessage {
		return err
	}
	mended, ok := mendTexts(data.Materialize(), m.ProtoReflect().Descriptor())
	if !ok {
		return err
	}
	proto.Reset(m)
	return proto.Unmarshal(mended, m)
}

// identity is the message whose texts identify something.
var identity = (*wire.Child)(nil).ProtoReflect().Descriptor().FullName()

// mendTexts replaces what is no UTF-8 in the texts of a message; ok is false if it is no message at all.
func mendTexts(raw []byte, d protoreflect.MessageDescriptor) (mended []byte, ok bool) {
	instead := "\uFFFD"
	if d.FullName() == identity {
		instead = "\x00"
	}
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(number, kind, raw[n:])
		if size < 0 {
			return nil, false
		}
		field, value := d.Fields().ByNumber(number), raw[n:n+size]
		if kind == protowire.BytesType && field != nil {
			content, _ := protowire.ConsumeBytes(value)
			switch {
			case field.Kind() == protoreflect.StringKind && !utf8.Valid(content):
				value = protowire.AppendString(nil, strings.ToValidUTF8(string(content), instead))
			case field.Kind() == protoreflect.MessageKind:
				inner, ok := mendTexts(content, field.Message())
				if !ok {
					return nil, false
				}
				value = protowire.AppendBytes(nil, inner)
			}
		}
		mended = append(append(mended, raw[:n]...), value...)
		raw = raw[n+size:]
	}
	return mended, true
}
