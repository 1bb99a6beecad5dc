package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/service/audit"
)

func describeDetails(d audit.Details) string {
	before, after := d["from"], d["to"]
	rest := maps.Clone(d)
	var parts []string
	if after != nil || before != nil {
		delete(rest, "from")
		delete(rest, "to")
		parts = describeChange("", before, after)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		value := rest[name]
		if change, ok := value.(map[string]any); ok && (change["from"] != nil || change["to"] != nil) {
			parts = append(parts, describeChange(name, change["from"], change["to"])...)
			continue
		}
		parts = append(parts, describeValue(name, value))
	}
	return strings.Join(parts, ", ")
}

// describeChange describes a changed value. Of an object, it describes only the fields that changed.
func describeChange(name string, from, to any) (parts []string) {
	before, _ := from.(map[string]any)
	after, _ := to.(map[string]any)
	if before == nil && after == nil {
		return []string{
			strings.TrimSpace(
				fmt.Sprintf("%s from %s to %s", format.FieldName(name), valueText(name, from), valueText(name, to))),
		}
	}
	fields := map[string]any{}
	maps.Copy(fields, before)
	maps.Copy(fields, after)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if old, now := valueText(field, before[field]), valueText(field, after[field]); old != now {
			parts = append(parts, describeChange(field, before[field], after[field])...)
		}
	}
	return parts
}

// describeValue describes a set value. A boolean is described by its name alone.
func describeValue(name string, value any) string {
	if value == true {
		return strings.ReplaceAll(name, "_", " ")
	}
	return strings.ReplaceAll(strings.TrimSuffix(name, "_seconds"), "_", " ") + " " + valueText(name, value)
}

func valueText(name string, value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return value
	case bool:
		if value {
			return "on"
		}
		return "off"
	case float64:
		return numberText(name, value)
	case []any:
		var texts []string
		for _, one := range value {
			texts = append(texts, valueText("", one))
		}
		return strings.Join(texts, " ")
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// numberText knows from the name whether a duration is in nanoseconds or seconds.
func numberText(name string, n float64) string {
	f := guards.fields.ByJSONName(format.FieldName(name))
	switch {
	case f != nil && f.Kind() == protoreflect.MessageKind: // stored as time.Duration
		return format.Period(time.Duration(n))
	case strings.HasSuffix(name, "_seconds"):
		return format.Period(time.Duration(n * float64(time.Second)))
	case strings.HasSuffix(strings.ToLower(name), "days"):
		return format.Count(int64(n), "day", "days")
	case name == "": // an id
		return fmt.Sprintf("%.0f", n)
	}
	return humanize.CommafWithDigits(n, 2)
}
