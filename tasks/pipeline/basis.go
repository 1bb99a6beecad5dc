package pipeline

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/tasks/plan"
	"github.com/cleanupd/cleanupd/tasks/preview"
	"github.com/cleanupd/cleanupd/tasks/refused"
)

// BasisOf returns what decides what a run does, apart from the rows and the time.
func BasisOf(c Config, env plan.Env) preview.Basis {
	b := preview.Basis{
		Version:  "unknown",
		Options:  env.Options.InForce(),
		Mappings: env.Catalog.Mappings(),
		Holds:    env.Holds.Names,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = info.Main.Version
	}
	b.External = map[string]string{}
	for name, o := range c.External {
		b.External[name] = o.Basis
	}
	for _, t := range c.Pipeline {
		if t.Basis != "" {
			b.External[t.Name] = t.Basis
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.MidSourcing.Databases)) {
		b.MidSourcing = append(b.MidSourcing, name+"="+address(c.MidSourcing.Databases[name]))
	}
	for _, name := range slices.Sorted(slices.Values(c.MidSourcing.Keep)) {
		b.MidSourcing = append(b.MidSourcing, name+"=keep")
	}
	return b
}

// address returns the server's address, without credentials.
func address(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if host := fmt.Sprintf("%s:%d", f.Host, f.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + c.Database
}

// ConfirmPlan fails with a refused.Error if the basis of a saved plan has changed.
func ConfirmPlan(ctx context.Context, c Config, holds plan.Holds, saved preview.Task) error {
	env, err := LoadEnv(ctx, c, c.Pool, holds)
	if err != nil {
		return err
	}
	return confirm(c, env, saved)
}

func confirm(c Config, env plan.Env, saved preview.Task) error {
	if changes := saved.Basis.Changes(BasisOf(c, env)); changes != nil {
		return refused.StalePlan(changes...)
	}
	return nil
}

func replacedSince(before, now map[string]string) (replaced []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if oid, found := now[name]; found && oid != before[name] {
			replaced = append(replaced, name+" is another table than the one that was previewed")
		}
	}
	return replaced
}

// optionsOf returns the effective options that a task reads. The basis of a policy, or of a task on another
// database, is included as an option with the task's name.
func optionsOf(c Config, env plan.Env, t plan.Task) map[string]string {
	options, names := env.Options.InForce(), t.OptionNames()
	maps.DeleteFunc(options, func(name, _ string) bool { return !slices.Contains(names, name) })
	if o, ok := c.External[t.Name]; ok {
		options[t.Name] = o.Basis
	}
	if t.Basis != "" {
		options[t.Name] = t.Basis
	}
	return options
}
