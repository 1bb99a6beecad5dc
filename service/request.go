package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
)

// DefaultPageSize applies if a request gives no page size. The other constants are the largest page sizes.
const (
	DefaultPageSize = 50
	MaxRuns         = 100
	MaxReceipts     = 1000

	MaxRemoteDeliveries = 1000
	MaxHolds            = 1000
	MaxAudit            = 1000
)

func parsePageSize(asked int32, most int) (int, error) {
	switch {
	case asked < 0:
		return 0, failure.Field("page_size", "must not be negative")
	case asked == 0:
		return DefaultPageSize, nil
	}
	return min(int(asked), most), nil
}

// maxListed is the largest page size of lists that are read as a whole, and their default.
const maxListed = 1000

// pageOf returns a page of a list. The token of the next page is the name of the last element of the page.
func pageOf[T any](list []T, size int32, token string, name func(T) string) (page []T, next string, err error) {
	if size == 0 {
		size = maxListed
	}
	length, err := parsePageSize(size, maxListed)
	if err != nil {
		return nil, "", err
	}
	last, err := pagetoken.Parse[string](token)
	if err != nil {
		return nil, "", err
	}
	if last != "" {
		i := slices.IndexFunc(list, func(e T) bool { return name(e) == last })
		if i < 0 {
			return nil, "", pagetoken.ErrInvalid
		}
		list = list[i+1:]
	}
	page, next = pagetoken.Cut(list, length, name)
	return page, next, nil
}

// checkMask finds paths that do not exist or that name a field that is only output.
func checkMask(mask *fieldmaskpb.FieldMask, m proto.Message, outputOnly ...string) (wrong failure.Violations) {
	descriptor := m.ProtoReflect().Descriptor()
	for i, path := range mask.GetPaths() {
		field := fmt.Sprintf("update_mask.paths[%d]", i)
		switch {
		case path == "": // the mask that the gateway makes from the body {}
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
	own := m != nil && m.ParentFile().Package() == d.ParentFile().Package() // a path cannot name parts of a duration
	return own && !field.IsList() && !field.IsMap() && hasField(m, rest)
}

// merge takes the fields that the mask names from given, where an absent field means its default, and all others from
// stored. Without a mask it returns given.
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
	case field == nil: // the mask that the gateway makes from the body {}
	case nested:
		set(to.Mutable(field).Message(), from.Get(field).Message(), rest)
	case from.Has(field):
		to.Set(field, from.Get(field))
	default:
		to.Clear(field)
	}
}

// nameOf returns the name in the message or else the one in the request. It fails with a failure.FieldError for field
// if they differ.
func nameOf(field, inMessage, inRequest string) (string, error) {
	if inMessage != "" && inRequest != "" && inMessage != inRequest {
		return "", failure.Field(field, "is not the name in the request")
	}
	return cmp.Or(inMessage, inRequest), nil
}

func parseTime(field string, t *timestamppb.Timestamp) (*time.Time, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.CheckValid(); err != nil {
		return nil, failure.Field(field, err.Error())
	}
	at := t.AsTime()
	return &at, nil
}

func checkText(field, text string, most int) error {
	if utf8.RuneCountInString(text) > most || strings.ContainsRune(text, 0) {
		return failure.Field(field, fmt.Sprintf("must have at most %d characters, and no NUL", most))
	}
	return nil
}

// parseUndo returns nil if no time is given, and a negative one if it is invalid.
func parseUndo(d *durationpb.Duration) *time.Duration {
	switch {
	case d == nil:
		return nil
	case d.CheckValid() != nil:
		return new(time.Duration(-1))
	}
	return new(d.AsDuration())
}

func undoMessage(undo *time.Duration) *durationpb.Duration {
	if undo == nil {
		return nil
	}
	return durationpb.New(*undo)
}

// parseMaxDuration returns 0 for no limit, and a negative number if the duration is invalid.
func parseMaxDuration(d *durationpb.Duration) time.Duration {
	switch {
	case d == nil:
		return 0
	case d.CheckValid() != nil || d.AsDuration() <= 0:
		return -1
	}
	return d.AsDuration()
}

// parseRequestID returns uuid.Nil if no id is given.
func parseRequestID(text string) (uuid.UUID, error) {
	if text == "" {
		return uuid.Nil, nil
	}
	id, err := uuid.Parse(text)
	if err != nil || id == uuid.Nil {
		return uuid.Nil, failure.Field("request_id", "must be a UUID other than the nil UUID")
	}
	return id, nil
}
