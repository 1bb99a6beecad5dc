package forms

import (
	"regexp"
	"strconv"
	"strings"
)

// Args are the values of the @names in a statement. Lists of ids and texts become literals, other values parameters.
type Args map[string]any

var argument = regexp.MustCompile(`@[a-z]+`)

// expand replaces the @names in a statement by literals and parameters. An empty list becomes NULL, and IN (NULL) is
// never true.
func expand(d dialect, statement string, a Args) (string, []any) {
	var values []any
	text := argument.ReplaceAllStringFunc(statement, func(name string) string {
		value, ok := a[name[1:]]
		if !ok {
			panic("no argument " + name)
		}
		var list []string
		switch v := value.(type) {
		case []int64:
			for _, id := range v {
				list = append(list, strconv.FormatInt(id, 10))
			}
		case []string:
			for _, s := range v {
				list = append(list, d.literal(s))
			}
		default:
			values = append(values, value)
			return d.parameter(len(values))
		}
		if list == nil {
			return "NULL"
		}
		return strings.Join(list, ", ")
	})
	return text, values
}
