package userdata

import (
	"context"
	"fmt"
	"math/big"
	"regexp"
	"slices"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Variable is a variable of a workflow, or stands for all of its variables if Name is empty.
type Variable struct{ Application, Workflow, Name string }

func (v Variable) String() string {
	name := v.Name
	if name == "" {
		name = "all variables"
	}
	return fmt.Sprintf("%s of workflow %s/%s", name, v.Application, v.Workflow)
}

// ErrNoVariable means that the database has no such workflow or variable.
var ErrNoVariable = failure.New(failure.NotFound, "the database knows no such")

// number matches user ids that are numbers which a database can cast.
var number = regexp.MustCompile(`^-?[0-9]{1,1000}(\.[0-9]{1,1000})?$`)

// searchVariable returns descriptions of the variables that could not be searched.
func (s *searcher) searchVariable(ctx context.Context, v Variable) (skipped []string, err error) {
	name := "pt_" + v.Application + "/" + v.Workflow
	columns, known, err := s.tx.WorkflowColumns(ctx, func(n string) bool { return n == name })
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the variables: %w", err)
	case !known:
		return nil, fmt.Errorf("%w workflow: %s/%s", ErrNoVariable, v.Application, v.Workflow)
	case len(columns) == 0:
		return []string{fmt.Sprintf("%s: its table does not look like the table of a workflow", v)}, nil
	}
	instance := map[string]string{} // the column with the process instance, by table
	for _, c := range columns {
		if c.Ambiguous {
			return []string{
				fmt.Sprintf("%s: several tables have the name of its table, in upper and lower case", v),
			}, nil
		}
		if c.Instance {
			instance[c.Table] = s.tx.Quote(c.Name)
		}
	}
	columns = slices.DeleteFunc(columns, func(c forms.Column) bool {
		return c.Instance || (v.Name != "" && c.Name != v.Name)
	})
	if v.Name != "" && len(columns) == 0 {
		return nil, fmt.Errorf("%w variable: %s", ErrNoVariable, v)
	}
	for _, c := range columns {
		v.Name = c.Name
		condition, value, ok := s.tx.Contains(c)
		switch {
		case !ok:
			skipped = append(skipped, fmt.Sprintf("%s: a column of type %s cannot be searched", v, c.Type))
			continue
		case c.Number && !number.MatchString(s.user):
			continue
		}
		query := fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s", instance[c.Table], value, c.Quoted, condition)
		if err := s.addMatches(ctx, query, v, c.Number); err != nil {
			return nil, fmt.Errorf("search %s: %w", v, err)
		}
	}
	return skipped, nil
}

// addMatches counts the most certain match of each process instance.
func (s *searcher) addMatches(ctx context.Context, query string, v Variable, isNumber bool) error {
	best := map[int64]Match{}
	var instance, value any
	if err := s.tx.Each(ctx, query, forms.Args{"user": s.user}, []any{&instance, &value}, func() {
		id, text := forms.ID(instance), forms.Text(value)
		if id == 0 || (isNumber && !equalNumbers(text, s.user)) {
			return
		}
		how := Whole
		if !isNumber {
			how = match(text, s.user)
		}
		if known := best[id]; known == "" || known == Part || how == Whole {
			best[id] = how
		}
	}); err != nil {
		return err
	}
	for id, how := range best {
		s.add(id, Reason{Kind: InVariable, Variable: v, Match: how})
	}
	return nil
}

func equalNumbers(a, b string) bool {
	x, xOK := new(big.Rat).SetString(a)
	y, yOK := new(big.Rat).SetString(b)
	return xOK && yOK && x.Cmp(y) == 0
}
