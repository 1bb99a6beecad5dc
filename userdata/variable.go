package userdata

import (
	"context"
	"fmt"
	"math/big"
	"regexp"
	"slices"

	"github.com/cleanupd/cleanupd/internal/failure"
)

// Variable names a variable of a workflow; an empty name means all of them.
type Variable struct{ Application, Workflow, Name string }

func (v Variable) String() string {
	name := v.Name
	if name == "" {
		name = "all variables"
	}
	return fmt.Sprintf("%s of workflow %s/%s", name, v.Application, v.Workflow)
}

// ErrNoVariable says that the database has no such workflow or variable.
var ErrNoVariable = failure.New(failure.NotFound, "the database knows no such")

// number is a user id that is a number, and not longer than a database can cast.
var number = regexp.MustCompile(`^-?[0-9]{1,1000}(\.[0-9]{1,1000})?$`)

// search looks for a user id in a workflow's variables, and returns which it could not search.
func (f *finding) search(ctx context.Context, tx *transaction, v Variable, user string) (skipped []string, err error) {
	columns, known, err := workflowColumns(
		ctx,
		tx,
		func(name string) bool { return name == "pt_"+v.Application+"/"+v.Workflow },
	)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the variables: %w", err)
	case !known:
		return nil, fmt.Errorf("%w workflow: %s/%s", ErrNoVariable, v.Application, v.Workflow)
	case len(columns) == 0:
		return []string{fmt.Sprintf("%s: the table that it names is none of a workflow", v)}, nil
	}
	columns = slices.DeleteFunc(
		columns,
		func(c column) bool { return c.Name == instanceColumn || (v.Name != "" && c.Name != v.Name) },
	)
	if v.Name != "" && len(columns) == 0 {
		return nil, fmt.Errorf("%w variable: %s", ErrNoVariable, v)
	}
	for _, c := range columns {
		one := Variable{v.Application, v.Workflow, c.Name}
		condition, value, ok := tx.holds(c)
		switch {
		case !ok:
			skipped = append(skipped, fmt.Sprintf("%s: a column of type %s can not be searched", one, c.Type))
			continue
		case c.Number && !number.MatchString(user):
			continue // the user id is not a number
		}
		if err := f.hits(
			ctx,
			tx,
			c,
			one,
			fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s", tx.quote(instanceColumn), value, c.Quoted, condition),
			user,
		); err != nil {
			return nil, fmt.Errorf("search %s: %w", one, err)
		}
	}
	return skipped, nil
}

// hits adds the process instances of a query, with the most certain match of each.
func (f *finding) hits(ctx context.Context, tx *transaction, c column, v Variable, statement, user string) error {
	best := map[int64]Match{}
	var instance, value any
	if err := tx.each(ctx, statement, args{"user": user}, []any{&instance, &value}, func() {
		id, text := idOf(instance), textOf(value)
		if id == 0 || (c.Number && !equal(text, user)) {
			return
		}
		how := Whole
		if !c.Number {
			how = match(text, user)
		}
		if known := best[id]; known == "" || known == Part || how == Whole {
			best[id] = how
		}
	}); err != nil {
		return err
	}
	for id, how := range best {
		f.add(id, Reason{Kind: InVariable, Variable: v, Match: how})
	}
	return nil
}

// equal reports whether two texts are the same number.
func equal(a, b string) bool {
	x, ok := new(big.Rat).SetString(a)
	y, also := new(big.Rat).SetString(b)
	return ok && also && x.Cmp(y) == 0
}
