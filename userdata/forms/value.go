package forms

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Text returns a value as text, with floating-point numbers written without an exponent.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// idPattern matches an id as columns of different types return it.
var idPattern = regexp.MustCompile(`^([0-9]{1,19})(\.0*)?$`)

// ID returns 0 if the value is not an id.
func ID(value any) int64 {
	m := idPattern.FindStringSubmatch(strings.TrimRight(Text(value), " "))
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil { // too large
		return 0
	}
	return n
}
