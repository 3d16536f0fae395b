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

// tolerant is the codec of protocol buffers, but it accepts texts that are not UTF-8. One message has the results of
// many items, and an unreadable message would break the stream and lose them all. Bad bytes are replaced: by U+FFFD in
// texts for people, and by NUL in the identifiers of an emitted item, so that the item is refused.
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

// identity is the message whose texts are identifiers.
var identity = (*wire.Child)(nil).ProtoReflect().Descriptor().FullName()

// mendTexts replaces bytes that are not UTF-8 in the texts of a message; ok is false if raw is no message.
func mendTexts(raw []byte, d protoreflect.MessageDescriptor) (mended []byte, ok bool) {
	replacement := "\uFFFD"
	if d.FullName() == identity {
		replacement = "\x00"
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
				value = protowire.AppendString(nil, strings.ToValidUTF8(string(content), replacement))
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
