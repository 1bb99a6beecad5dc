package explain

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

const maxIDs = 10

func format(args []any) (values []string) {
	for _, a := range args {
		values = append(values, formatOne(a))
	}
	return values
}

func formatOne(value any) string {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case *time.Time:
		if v == nil {
			return "NULL"
		}
		return formatOne(*v)
	case pgtype.Timestamptz:
		switch {
		case v.InfinityModifier == pgtype.Infinity:
			return "infinity"
		case v.InfinityModifier == pgtype.NegativeInfinity:
			return "-infinity"
		case !v.Valid:
			return "NULL"
		}
		return formatOne(v.Time)
	case []int64:
		text := fmt.Sprint(v[:min(len(v), maxIDs)])
		if more := len(v) - maxIDs; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
	}
	return fmt.Sprint(value)
}
