package transport

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// marshal returns a message in wire format. Texts of a database without an encoding (SQL_ASCII), and messages of a
// server before the connection has an encoding, may be invalid UTF-8, which protobuf rejects: invalid bytes are
// replaced.
func marshal[Wire any](m proto.Message, by func(m proto.Message) (Wire, error)) (Wire, error) {
	wire, err := by(m)
	if err == nil {
		return wire, nil
	}
	m = proto.Clone(m)
	replaceInvalid(m.ProtoReflect())
	return by(m)
}

// replaceInvalid replaces invalid bytes in all strings of a message.
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

// replaceInvalidIn replaces invalid bytes in the keys and values of a map, whose values are of a field.
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

// validValue returns the replacement of a string that is not valid UTF-8, and an invalid value if none is needed. It
// changes a message in place.
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
