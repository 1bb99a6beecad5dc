package policies

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service"
)

// LookAt lends a look connections to a database that can only read.
func LookAt(
	ctx context.Context, url string, look service.Look, do func(look service.Look, ctx context.Context) error,
) error {
	config, err := flags.DatabaseURL("--database-url", url)
	if err != nil {
		return err
	}
	connection.ReadOnly(config.ConnConfig)
	if look.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer look.Pool.Close()
	return explainLook(do(look, ctx))
}

// explainLook returns usage errors for what was typed or is in the file.
func explainLook(err error) error {
	var (
		wrong failure.Violations
		field *failure.FieldError
	)
	switch {
	case errors.As(err, &field):
		return flags.Errorf("--task: %w", err)
	case errors.As(err, &wrong):
		var each []error
		for _, v := range wrong {
			name, path, _ := strings.Cut(v.Field, ".")
			where := "policy " + name
			if path != "" {
				where += ": " + FieldPath(path)
			}
			each = append(each, flags.Errorf("%s: %s", where, v.Problem))
		}
		return errors.Join(each...)
	}
	return err
}
