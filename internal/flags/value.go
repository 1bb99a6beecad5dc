package flags

import (
	"errors"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// whole has the ranges of the types of flags that take whole numbers.
var whole = map[string][2]int64{
	"int":   {math.MinInt, math.MaxInt},
	"int32": {math.MinInt32, math.MaxInt32},
	"int64": {math.MinInt64, math.MaxInt64},
}

// explainValue replaces the error of a value that is not a number, or out of range, by one that says which values are
// possible.
func explainValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f, text := invalid.GetFlag(), invalid.GetValue()
	limits, isWhole := whole[f.Value.Type()]
	var number *strconv.NumError
	switch {
	case !errors.As(err, &number):
		return err
	case isWhole && errors.Is(number.Err, strconv.ErrRange):
		return Errorf("--%s must be from %d to %d, not %s", f.Name, limits[0], limits[1], text)
	case isWhole:
		return Errorf("--%s must be a whole number, not %q", f.Name, text)
	case f.Value.Type() == "bool":
		return Errorf("--%s must be true or false, not %q", f.Name, text)
	}
	return err
}

// ParseError returns the error of a command line that cannot be parsed.
func ParseError(cmd *cobra.Command, err error) error {
	return Errorf("%w; see %s --help", explainValue(err), cmd.CommandPath())
}
