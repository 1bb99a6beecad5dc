package serve

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/service/runs/tasklist"
)

// addProfileFlag adds the flag that says which tasks the database has.
func addProfileFlag(cmd *cobra.Command, p *tasklist.Profile) {
	cmd.Flags().Var(p, "profile",
		"which tasks the database has: those of Campaign (campaign), none, so that runs execute only policies (none), or "+
			"those of Campaign if it has any of Campaign's tables (auto)")
	names := cobra.FixedCompletions(tasklist.Profiles, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("profile", names) // it fails only for an unknown flag
}

// logProfile logs whether the database has the tasks of Campaign, and why.
func (s *Server) logProfile(ctx context.Context, given tasklist.Profile) error {
	list, err := s.manager.Tasks.Read(ctx, s.pool)
	if err != nil {
		return err
	}
	decided, why := tasklist.Campaign, "the database has tables of Campaign"
	if list.Foreign {
		decided, why = tasklist.None, "the database has no table of Campaign"
	}
	if given != tasklist.Auto {
		why = "--profile " + given.String()
	}
	s.log.Info("profile", "name", decided, "reason", why, "tasks", len(list.Tasks))
	return nil
}
