package service

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// checkMask returns the violations of an update mask whose fields a message must have, without the ones that are output
// only.
func checkMask(mask *fieldmaskpb.FieldMask, m proto.Message, outputOnly ...string) (wrong failure.Violations) {
	descriptor := m.ProtoReflect().Descriptor()
	for i, path := range mask.GetPaths() {
		field := fmt.Sprintf("update_mask.paths[%d]", i)
		switch {
		case path == "": // the gateway's mask of the body {}
		case descriptor.Fields().ByName(protoreflect.Name(path)) == nil:
			wrong.Addf(field, "%s has no field %.64q", descriptor.Name(), path)
		case slices.Contains(outputOnly, path):
			wrong.Addf(field, "%s is output only", path)
		}
	}
	return wrong
}

// merge returns the message to store: the stored one with the fields of the mask from the given one, in which an absent
// field stands for its default. If mask is nil it returns the given one.
func merge[M proto.Message](stored, given M, mask *fieldmaskpb.FieldMask) M {
	if mask == nil {
		return given
	}
	merged := proto.CloneOf(stored)
	to, from := merged.ProtoReflect(), given.ProtoReflect()
	for _, path := range mask.GetPaths() {
		field := to.Descriptor().Fields().ByName(protoreflect.Name(path))
		switch {
		case field == nil: // the gateway's mask of the body {}
		case from.Has(field):
			to.Set(field, from.Get(field))
		default:
			to.Clear(field)
		}
	}
	return merged
}

// nameOf returns the name of what a request changes: that in the message, whose field is named, or that in the request.
// It fails with a failure.FieldError if they differ.
func nameOf(field, inMessage, inRequest string) (string, error) {
	if inMessage != "" && inRequest != "" && inMessage != inRequest {
		return "", failure.Field(field, "is not the name in the request")
	}
	return cmp.Or(inMessage, inRequest), nil
}
