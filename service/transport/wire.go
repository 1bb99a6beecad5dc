package transport

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Encoded is a message in wire format, which a stream may send in place of the message.
type Encoded []byte

func Encode(message protobuf.Message) (Encoded, error) {
	raw, err := marshal(message, protobuf.Marshal)
	return Encoded(raw), err
}

// codec sends Encoded messages unchanged.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(Encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	message, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return marshal(message, func(m protobuf.Message) (mem.BufferSlice, error) { return c.CodecV2.Marshal(m) })
}

func passEncoded() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// marshal replaces bytes that are not valid UTF-8, because protobuf rejects them. They occur in texts of a database
// without an encoding (SQL_ASCII), and in messages of a server before the connection has an encoding.
func marshal[Wire any](m protobuf.Message, by func(m protobuf.Message) (Wire, error)) (Wire, error) {
	wire, err := by(m)
	if err == nil {
		return wire, nil
	}
	m = protobuf.Clone(m)
	replaceInvalid(m.ProtoReflect())
	return by(m)
}

func replaceInvalid(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			replaceInvalidIn(value.Map(), field.MapValue())
		case field.IsList():
			for list, i := value.List(), 0; i < list.Len(); i++ {
				if valid := validValue(field, list.Get(i)); valid.IsValid() {
					list.Set(i, valid)
				}
			}
		default:
			if valid := validValue(field, value); valid.IsValid() {
				m.Set(field, valid)
			}
		}
		return true
	})
}

func replaceInvalidIn(m protoreflect.Map, values protoreflect.FieldDescriptor) {
	m.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if valid := validValue(values, value); valid.IsValid() {
			m.Set(key, valid)
			value = valid
		}
		if text, isText := key.Interface().(string); isText && !utf8.ValidString(text) {
			m.Clear(key)
			m.Set(protoreflect.ValueOfString(validText(text)).MapKey(), value)
		}
		return true
	})
}

// validValue returns the replacement of a string that is not valid UTF-8, or an invalid value if no replacement is
// needed. It changes a message in place.
func validValue(field protoreflect.FieldDescriptor, value protoreflect.Value) (valid protoreflect.Value) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		replaceInvalid(value.Message())
	case protoreflect.StringKind:
		if text := value.String(); !utf8.ValidString(text) {
			return protoreflect.ValueOfString(validText(text))
		}
	}
	return protoreflect.Value{}
}

func validText(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }
