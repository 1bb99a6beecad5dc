package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/cli/format"
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
	return explainLook(lend(ctx, url, look, do), nil, "")
}

// lookWith is like LookAt, with the policies of a file and the database of the server in this process.
func lookWith(
	ctx context.Context, server *rpc.Server, file string, entries []entry,
	do func(look service.Look, ctx context.Context) error,
) error {
	var look service.Look
	for _, e := range entries {
		look.Policies = append(look.Policies, e.policy)
	}
	return explainLook(lend(ctx, server.DatabaseURL(), look, do), entries, grantsCommand(server, file))
}

// checkFirst fails if the server in this process would refuse a policy. The server itself would do so only after it has
// created the schema cleanupd.
func checkFirst(ctx context.Context, server *rpc.Server, file string, entries []entry) error {
	if !server.InProcess() {
		return nil
	}
	return lookWith(ctx, server, file, entries, service.Look.Check)
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

// explainLook returns usage errors for mistakes in flags or in the file, with their place in the file. The command
// grants prints all rights.
func explainLook(err error, file []entry, grants string) error {
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
			each = append(each, &rightsError{lacks, grants})
		}
		return errors.Join(each...)
	case errors.As(err, &lacks):
		return &rightsError{lacks, grants}
	}
	return err
}

func grantsCommand(server *rpc.Server, file string) string {
	return server.Command("policies grants", format.ShellWord(file))
}

// rightsError names each GRANT on a line of its own, and the command that prints them as a script, if there is one.
type rightsError struct {
	missing rules.MissingRights
	command string
}

func (e *rightsError) Error() string {
	return fmt.Sprintf("the role lacks %s; have the tables' owner execute:",
		format.Count(int64(len(e.missing)), "right", "rights"))
}

func (e *rightsError) Lines() (lines []string) {
	for _, g := range e.missing {
		lines = append(lines, g+";")
	}
	if e.command != "" {
		lines = append(lines, "All that the policies need, as a script: "+e.command)
	}
	return lines
}
