package policies

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// LookAt calls do with a look whose connections to the database are read-only.
func LookAt(
	ctx context.Context, url string, look service.Look, do func(look service.Look, ctx context.Context) error,
) error {
	return explainLook(lend(ctx, url, look, do), nil)
}

// lookWith is like LookAt, with the policies of a file and the database of the server in this process.
func lookWith(
	ctx context.Context, server *rpc.Server, entries []entry, do func(look service.Look, ctx context.Context) error,
) error {
	var look service.Look
	for _, e := range entries {
		look.Policies = append(look.Policies, e.policy)
	}
	return explainLook(lend(ctx, server.DatabaseURL(), look, do), entries)
}

// checkFirst fails if the server in this process would refuse a policy. The server itself would do so only after it has
// created the schema cleanupd.
func checkFirst(ctx context.Context, server *rpc.Server, entries []entry) error {
	if !server.InProcess() {
		return nil
	}
	return lookWith(ctx, server, entries, service.Look.Check)
}

func lend(
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
	return do(look, ctx)
}

// explainLook returns usage errors for mistakes in flags or in the file, with their place in the file.
func explainLook(err error, file []entry) error {
	var (
		wrong failure.Violations
		lacks rules.MissingRights
		field *failure.FieldError
	)
	switch {
	case errors.As(err, &field):
		return flags.Errorf("--task: %w", err)
	case errors.As(err, &wrong):
		var each []error
		for _, v := range wrong {
			name, path, _ := strings.Cut(v.Field, ".")
			where, path := "policy "+name, FieldPath(path)
			if i := slices.IndexFunc(file, func(e entry) bool { return e.policy.GetName() == name }); i >= 0 {
				where = file[i].where(path) + ": " + where
			}
			if path != "" {
				where += ": " + path
			}
			each = append(each, flags.Errorf("%s: %s", where, v.Problem))
		}
		if errors.As(err, &lacks) {
			each = append(each, lacks)
		}
		return errors.Join(each...)
	}
	return err
}
