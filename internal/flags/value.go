package flags

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// whole has the ranges of the types of flags that take whole numbers.
var whole = map[string][2]int64{
	"int":   {math.MinInt, math.MaxInt},
	"int32": {math.MinInt32, math.MaxInt32},
	"int64": {math.MinInt64, math.MaxInt64},
}

// explainValue says which values are possible if a value is not a number or out of range.
func explainValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f, text := invalid.GetFlag(), invalid.GetValue()
	limits, isWhole := whole[strings.TrimSuffix(f.Value.Type(), "Slice")]
	var number *strconv.NumError
	switch {
	case f.Value.Type() == "duration":
		return Errorf("--%s %w", f.Name, invalid.Unwrap())
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

func ParseError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() { // a flag of a misspelt command is unknown, too
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			return err
		}
	}
	similar := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
		similar = Similar("--"+unknown.GetSpecifiedName(), known)
	}
	return Errorf("%w%s; see %s --help", explainValue(err), similar, cmd.CommandPath())
}

// Similar returns a hint with similar names, which ends an error; "" if no name is similar.
func Similar(unknown string, known []string) string {
	const distance = 2
	names := &cobra.Command{SuggestionsMinimumDistance: distance} // cobra compares names like this for unknown commands
	for _, name := range known {
		// A comparison takes memory for the product of both lengths, and a request may have a name of 1 MiB.
		if len(unknown) <= len(name)+distance {
			names.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
		}
	}
	if similar := names.SuggestionsFor(unknown); len(similar) > 0 {
		return " (did you mean " + strings.Join(similar, " or ") + "?)"
	}
	return ""
}
