package policies

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// isServers reports whether the server sets a field of a policy, so that no file has it.
func isServers(f protoreflect.FieldDescriptor) bool {
	return f.Name() == "etag" || f.Name() == "warnings"
}

// fieldOf returns the field with a name in JSON or in the proto file. It returns nil for an unknown name.
func fieldOf(fields protoreflect.FieldDescriptors, name string) protoreflect.FieldDescriptor {
	if f := fields.ByJSONName(name); f != nil {
		return f
	}
	return fields.ByName(protoreflect.Name(name))
}

// names returns the names of the fields of a message that a file can have.
func names(m protoreflect.Message) (list []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if !isServers(fields.Get(i)) {
			list = append(list, fields.Get(i).JSONName())
		}
	}
	return list
}

// enumPrefix returns what all names of an enum begin with, which files leave out.
func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().ByNumber(0).Name()), "UNSPECIFIED")
}

// enumNames returns the names of an enum's values without their prefix.
func enumNames(e protoreflect.EnumDescriptor) (list []string) {
	for i := 1; i < e.Values().Len(); i++ {
		list = append(list, strings.TrimPrefix(string(e.Values().Get(i).Name()), enumPrefix(e)))
	}
	return list
}
