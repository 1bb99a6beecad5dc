package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// checkMask finds paths that do not exist or that name a field that is only output.
func checkMask(mask *fieldmaskpb.FieldMask, m proto.Message, outputOnly ...string) (wrong failure.Violations) {
	descriptor := m.ProtoReflect().Descriptor()
	for i, path := range mask.GetPaths() {
		field := fmt.Sprintf("update_mask.paths[%d]", i)
		switch {
		case path == "": // the gateway's mask of the body {}
		case !hasField(descriptor, path):
			wrong.Addf(field, "%s has no field %.64q", descriptor.Name(), path)
		case slices.Contains(outputOnly, path):
			wrong.Addf(field, "%s is output only", path)
		}
	}
	return wrong
}

// hasField accepts a nested path too, such as "older_than.days".
func hasField(d protoreflect.MessageDescriptor, path string) bool {
	name, rest, nested := strings.Cut(path, ".")
	field := d.Fields().ByName(protoreflect.Name(name))
	if field == nil || !nested {
		return field != nil
	}
	m := field.Message()
	own := m != nil && m.ParentFile().Package() == d.ParentFile().Package() // a duration has no parts
	return own && !field.IsList() && !field.IsMap() && hasField(m, rest)
}

// merge takes the fields that the mask names from given, where an absent field stands for its default, and all
// others from stored. Without a mask it returns given.
func merge[M proto.Message](stored, given M, mask *fieldmaskpb.FieldMask) M {
	if mask == nil {
		return given
	}
	merged := proto.CloneOf(stored)
	for _, path := range mask.GetPaths() {
		set(merged.ProtoReflect(), given.ProtoReflect(), path)
	}
	return merged
}

// set clears the field if from does not have it.
func set(to, from protoreflect.Message, path string) {
	name, rest, nested := strings.Cut(path, ".")
	field := to.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case field == nil: // the gateway's mask of the body {}
	case nested:
		set(to.Mutable(field).Message(), from.Get(field).Message(), rest)
	case from.Has(field):
		to.Set(field, from.Get(field))
	default:
		to.Clear(field)
	}
}

// nameOf returns the name in the message or else the one in the request. It fails with a failure.FieldError about
// field if they differ.
func nameOf(field, inMessage, inRequest string) (string, error) {
	if inMessage != "" && inRequest != "" && inMessage != inRequest {
		return "", failure.Field(field, "is not the name in the request")
	}
	return cmp.Or(inMessage, inRequest), nil
}
