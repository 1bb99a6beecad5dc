package policies

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// isServers reports whether the server sets the field. Files leave such fields out.
func isServers(f protoreflect.FieldDescriptor) bool {
	return f.Name() == "etag" || f.Name() == "warnings"
}

// fieldOf takes the name in JSON or in the proto file, and returns nil if it is unknown.
func fieldOf(fields protoreflect.FieldDescriptors, name string) protoreflect.FieldDescriptor {
	if f := fields.ByJSONName(name); f != nil {
		return f
	}
	return fields.ByName(protoreflect.Name(name))
}

func names(m protoreflect.Message) (list []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if !isServers(fields.Get(i)) {
			list = append(list, fields.Get(i).JSONName())
		}
	}
	return list
}

// enumPrefix returns the prefix that all names of an enum share. Files leave it out.
func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().ByNumber(0).Name()), "UNSPECIFIED")
}

func enumNames(e protoreflect.EnumDescriptor) (list []string) {
	for i := 1; i < e.Values().Len(); i++ {
		list = append(list, strings.TrimPrefix(string(e.Values().Get(i).Name()), enumPrefix(e)))
	}
	return list
}
