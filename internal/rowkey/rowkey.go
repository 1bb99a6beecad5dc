// Package rowkey reads the keys of rows as people write them, on the command line and in the address of a request.
package rowkey

import (
	"regexp"
	"strings"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// further matches a column after the first one of a key. Its value is an integer or a time, since only the value of
// a key with one column may be a text. Anything else after a comma belongs to the text before the comma.
var further = regexp.MustCompile(`^\s*\w+=\s*(-?\d+|\d{4}-\d\d-\d\dT\S+)\s*$`)

// Parse reads VALUE, or COLUMN=VALUE,COLUMN=VALUE. It returns nil for an empty text.
func Parse(text string) (key []*cleanupv1.KeyColumn) {
	if text == "" {
		return nil
	}
	column, value, ok := strings.Cut(text, "=")
	if !ok {
		return []*cleanupv1.KeyColumn{{Value: text}}
	}
	parts := strings.Split(value, ",")
	last := &cleanupv1.KeyColumn{Column: column, Value: parts[0]}
	key = append(key, last)
	for _, part := range parts[1:] {
		if !further.MatchString(part) {
			last.Value += "," + part
			continue
		}
		column, value, _ := strings.Cut(part, "=")
		last = &cleanupv1.KeyColumn{Column: column, Value: value}
		key = append(key, last)
	}
	return key
}
