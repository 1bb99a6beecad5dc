package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/advisory"
	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

var optionDescriptors = (&cleanupv1.Options{}).ProtoReflect().Descriptor().Fields()

// optionsLock is the advisory lock that lets only one call at a time change options: "options" in ASCII.
const optionsLock = 0x6f7074696f6e73

func (s *Service) GetOptions(
	ctx context.Context, _ *cleanupv1.GetOptionsRequest,
) (*cleanupv1.GetOptionsResponse, error) {
	catalog, err := campaign.LoadCatalog(ctx, s.pool, campaign.Scope{})
	if err != nil {
		return nil, err
	}
	stored, err := campaign.ReadOptions(ctx, s.pool, catalog)
	if err != nil {
		return nil, err
	}
	return optionsResponse(stored), nil
}

func (s *Service) SetOptions(
	ctx context.Context, in *cleanupv1.SetOptionsRequest,
) (*cleanupv1.SetOptionsResponse, error) {
	changes, err := optionChanges(in)
	if err != nil {
		return nil, err
	}
	catalog, err := campaign.LoadCatalog(ctx, s.pool, campaign.Scope{})
	if err != nil {
		return nil, err
	}
	var before, now *cleanupv1.GetOptionsResponse
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx, fmt.Sprintf("SET LOCAL lock_timeout = '5s'; SELECT pg_advisory_xact_lock(%d)", optionsLock),
		); err != nil {
			return advisory.Explain(ctx, s.pool, optionsLock, err)
		}
		if err := s.runs.Own(ctx, tx); err != nil {
			return err
		}
		stored, err := campaign.ReadOptions(ctx, tx, catalog)
		if err != nil {
			return err
		}
		before = optionsResponse(stored)
		if err := etag.Check(in.GetEtag(), before.GetEtag(), "the options"); err != nil {
			return err
		}
		for _, c := range changes {
			if err := c(ctx, tx, catalog); err != nil {
				return err
			}
		}
		if stored, err = campaign.ReadOptions(ctx, tx, catalog); err != nil {
			return err
		}
		now = optionsResponse(stored)
		if err := store.ReleaseRefusals(ctx, tx, stored.InForce()); err != nil {
			return err
		}
		return audit.Note(ctx, tx, optionDetails(before.GetOptions(), now.GetOptions()))
	})
	if err != nil {
		return nil, err
	}
	return &cleanupv1.SetOptionsResponse{
		Options:    now.Options,
		Defaults:   now.Defaults,
		Customized: now.Customized,
		Etag:       now.Etag,
		Invalid:    now.Invalid,
	}, nil
}

// optionDetails returns only the fields that changed, with their old and new values.
func optionDetails(from, to *cleanupv1.Options) audit.Details {
	out, before, after := audit.Details{}, fieldValues(from), fieldValues(to)
	for _, f := range campaign.AllOptions {
		if before[f.Field] != after[f.Field] {
			out[f.Field] = map[string]any{"from": before[f.Field], "to": after[f.Field]}
		}
	}
	return out
}

func fieldValues(o *cleanupv1.Options) (values map[string]any) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	if err != nil { // cannot happen: the message is valid
		return map[string]any{"error": err.Error()}
	}
	return values
}

type optionChange func(ctx context.Context, tx pgx.Tx, c *campaign.Catalog) error

// optionChanges fails with failure.Violations.
func optionChanges(in *cleanupv1.SetOptionsRequest) ([]optionChange, error) {
	message := in.GetOptions().ProtoReflect()
	paths := in.GetUpdateMask().GetPaths()
	wrong := checkMask(in.GetUpdateMask(), in.GetOptions())
	var changes []optionChange
	for _, f := range campaign.AllOptions {
		field := optionDescriptors.ByName(protoreflect.Name(f.Field))
		if (len(paths) > 0 && !slices.Contains(paths, f.Field)) || (len(paths) == 0 && !message.Has(field)) {
			continue
		}
		problem := ""
		switch {
		case f.IsOutputOnly():
			problem = "is output only"
		case !message.Has(field):
			changes = append(changes, func(ctx context.Context, tx pgx.Tx, c *campaign.Catalog) error {
				return campaign.ResetOption(ctx, tx, c, f)
			})
		default:
			value := storedValue(message, field)
			if problem = problemWith(f, value); problem != "" {
				break
			}
			changes = append(changes, func(ctx context.Context, tx pgx.Tx, c *campaign.Catalog) error {
				return campaign.StoreNumber(ctx, tx, c, f, value)
			})
		}
		if problem != "" {
			wrong.Add("options."+f.Field, problem)
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	return changes, nil
}

// problemWith says why a value cannot be stored, or returns "".
func problemWith(f campaign.Option, value int) string {
	err := f.Check(value)
	switch {
	case err == nil:
		return ""
	case !f.IsDelay():
		return "must be STORAGE_OPTIMIZATION_VACUUM_ANALYZE, STORAGE_OPTIMIZATION_NONE or STORAGE_OPTIMIZATION_ANALYZE"
	}
	return err.Error()
}

// whatIfValues returns the values by name of the option, or nil if the dry run assumes none. It fails with
// failure.Violations.
func whatIfValues(o *cleanupv1.Options) (map[string]int, error) {
	if o == nil {
		return nil, nil
	}
	values := map[string]int{}
	var wrong failure.Violations
	for _, f := range campaign.AllOptions {
		field := optionDescriptors.ByName(protoreflect.Name(f.Field))
		if !o.ProtoReflect().Has(field) {
			continue
		}
		problem := "is output only"
		if !f.IsOutputOnly() {
			values[f.Name] = storedValue(o.ProtoReflect(), field)
			problem = problemWith(f, values[f.Name])
		}
		if problem != "" {
			wrong.Add("what_if."+f.Field, problem)
		}
	}
	if wrong == nil && len(values) == 0 {
		wrong.Add("what_if", "has no option")
	}
	if wrong != nil {
		return nil, wrong
	}
	return values, nil
}

// whatIfMessage returns nil if there are no values.
func whatIfMessage(values map[string]int) *cleanupv1.Options {
	if values == nil {
		return nil
	}
	o := &cleanupv1.Options{}
	for _, f := range campaign.AllOptions {
		if value, ok := values[f.Name]; ok {
			setField(o, f.Field, value)
		}
	}
	return o
}

// storedValue subtracts one from the value of an enum, because its zero is UNSPECIFIED and the stored codes begin
// at 0.
func storedValue(message protoreflect.Message, field protoreflect.FieldDescriptor) int {
	if field.Kind() == protoreflect.EnumKind {
		return int(message.Get(field).Enum()) - 1
	}
	return int(message.Get(field).Int())
}

func optionsResponse(stored *campaign.Options) *cleanupv1.GetOptionsResponse {
	out := &cleanupv1.GetOptionsResponse{
		Options:    &cleanupv1.Options{},
		Defaults:   &cleanupv1.Options{},
		Customized: &fieldmaskpb.FieldMask{},
		Etag:       optionsEtag(stored),
		Names:      map[string]string{},
	}
	for _, f := range campaign.AllOptions {
		out.Names[optionDescriptors.ByName(protoreflect.Name(f.Field)).JSONName()] = f.Name
		if stored.Stored(f) {
			out.Customized.Paths = append(out.Customized.Paths, f.Field)
		}
		value, err := effectiveValue(stored, f)
		if err != nil {
			out.Invalid = append(out.Invalid, &cleanupv1.InvalidOption{
				Field: f.Field, Option: f.Name, StoredValue: stored.Number(f), Reason: err.Error(),
			})
		}
		if f.IsOutputOnly() {
			continue
		}
		if err == nil || !f.IsDelay() {
			setField(out.Options, f.Field, value)
		}
		setField(out.Defaults, f.Field, f.Default)
	}
	last, _ := stored.Moment(campaign.LastCleanup) // the loop has reported its error
	out.Options.LastCleanupTime = timestamp(last)
	coalesced, _ := stored.Moment(campaign.LastErrorStatCoalesce)
	out.Options.LastErrorStatCoalesceTime = timestamp(coalesced)
	return out
}

// effectiveValue returns the value that tasks use: days for a delay, 0 for a time. It fails if tasks do not use the
// stored value.
func effectiveValue(stored *campaign.Options, o campaign.Option) (int, error) {
	switch {
	case o.IsDelay():
		delay, err := stored.Delay(o)
		return int(delay / campaign.Day), err
	case o.IsOutputOnly():
		_, err := stored.Moment(o)
		return 0, err
	}
	return stored.Statistics()
}

func setField(o *cleanupv1.Options, name string, value int) {
	field := optionDescriptors.ByName(protoreflect.Name(name))
	v := protoreflect.ValueOfInt32(int32(value))
	if field.Kind() == protoreflect.EnumKind {
		v = protoreflect.ValueOfEnum(protoreflect.EnumNumber(value + 1))
	}
	o.ProtoReflect().Set(field, v)
}

func optionsEtag(stored *campaign.Options) string {
	var values []any
	for _, f := range campaign.AllOptions {
		if !f.IsOutputOnly() {
			values = append(values, stored.Stored(f), stored.Number(f), stored.Text(f))
		}
	}
	return etag.Of(values...)
}
