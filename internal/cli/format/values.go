package format

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// word is the name of an enum's value, without what all its names begin with, in lower case.
func EnumName(value protoreflect.Enum) string {
	names := value.Descriptor().Values()
	prefix := strings.TrimSuffix(string(names.ByNumber(0).Name()), "UNSPECIFIED")
	name := names.ByNumber(value.Number())
	if name == nil { // of a newer server
		return fmt.Sprint(value.Number())
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(name.Name()), prefix), "_", " "))
}

func Size(n int64) string { return humanize.IBytes(uint64(n)) }

// rowsOf is a number of rows.
func Rows(n int64) string { return Count(n, "row", "rows") }

// counted is a number of things.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}

// duration is a time for people.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
