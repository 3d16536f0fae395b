package pluginproc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// JSON writes a message of the protocol for people: fields by name, in the order of the protocol, without unset ones.
// Bytes are written as JSON or text if they are valid, else as an object {"base64": …}. It cannot write maps: the only
// one of the protocol holds the secrets of a ConfigureRequest, and these must not be shown.
func JSON(m proto.Message) []byte {
	var b bytes.Buffer
	writeMessage(&b, m.ProtoReflect())
	return b.Bytes()
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message) {
	b.WriteByte('{')
	first := true
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if !m.Has(f) {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		writeValue(b, string(f.Name()))
		b.WriteByte(':')
		writeField(b, f, m.Get(f))
	}
	b.WriteByte('}')
}

func writeField(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	if !f.IsList() {
		writeOne(b, f, v)
		return
	}
	b.WriteByte('[')
	for i := range v.List().Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		writeOne(b, f, v.List().Get(i))
	}
	b.WriteByte(']')
}

func writeOne(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		writeMessage(b, v.Message())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			writeValue(b, string(e.Name()))
		} else {
			writeValue(b, int32(v.Enum()))
		}
	case protoreflect.BytesKind:
		switch raw := v.Bytes(); {
		case json.Valid(raw):
			_ = json.Compact(b, raw) // it is valid
		case utf8.Valid(raw):
			writeValue(b, string(raw))
		default:
			writeValue(b, map[string]string{"base64": base64.StdEncoding.EncodeToString(raw)})
		}
	default:
		writeValue(b, v.Interface())
	}
}

// writeValue writes a text, a number, a truth value or a map of texts as JSON.
func writeValue(b *bytes.Buffer, v any) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	b.Truncate(b.Len() - 1) // the end of the line
}
