// Package rowkey reads the keys of rows as people write them, on the command line and in the address of a request.
package rowkey

import (
	"regexp"
	"strings"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// further matches the beginning of a column after the first one of a key.
var further = regexp.MustCompile(`,\s*\w+=`)

// Parse reads VALUE, or COLUMN=VALUE,COLUMN=VALUE. It returns nil for an empty text.
func Parse(text string) (key []*cleanupv1.KeyColumn) {
	if text == "" {
		return nil
	}
	if !strings.Contains(text, "=") {
		return []*cleanupv1.KeyColumn{{Value: text}}
	}
	start := 0
	for _, at := range append(further.FindAllStringIndex(text, -1), []int{len(text)}) {
		column, value, _ := strings.Cut(text[start:at[0]], "=")
		key = append(key, &cleanupv1.KeyColumn{Column: column, Value: value})
		start = at[0] + 1
	}
	return key
}
