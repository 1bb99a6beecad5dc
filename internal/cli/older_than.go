package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/policies"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
)

// storedAges are the policies of --older-than that a command has stored for its preview, and that stay if the user
// confirms.
type storedAges struct {
	client cleanupd.Client
	before []*cleanupv1.Policy // nil for a policy that is new
	stored []*cleanupv1.Policy
}

// storeAges stores the policies. An existing policy of the same name may differ only in its age.
func storeAges(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, ages policies.Ages) (
	*storedAges, error,
) {
	var look service.Look
	for _, p := range ages {
		look.Policies = append(look.Policies, p.Policy)
	}
	if server.InProcess() && len(ages) > 0 { // a mistake must not create the schema cleanupd
		if err := policies.LookAt(cmd.Context(), server.DatabaseURL(), look, service.Look.Check); err != nil {
			return nil, err
		}
	}
	policies.WarnOfEveryRow(cmd, look.Policies)
	s := &storedAges{client: client}
	for _, p := range ages {
		if err := s.store(cmd.Context(), p); err != nil {
			return nil, s.withdraw(cmd.Context(), err)
		}
	}
	return s, nil
}

func (s *storedAges) store(ctx context.Context, p policies.Age) error {
	name := p.GetName()
	there, err := s.client.GetPolicy(ctx, &cleanupv1.GetPolicyRequest{Name: name})
	before := there.GetPolicy()
	switch {
	case err == nil && !p.Replaces(before):
		return fmt.Errorf("there is a policy %[1]s already, with another rule: see cleanupd policies get %[1]s", name)
	case err == nil && proto.Equal(before.GetOlderThan(), p.GetOlderThan()):
		return nil
	case err != nil && status.Code(err) != codes.NotFound && !errors.Is(err, migrate.ErrNoSchema):
		return err
	}
	p.Etag = before.GetEtag()
	set, err := s.client.SetPolicy(ctx, &cleanupv1.SetPolicyRequest{Policy: p.Policy})
	if err == nil {
		s.before, s.stored = append(s.before, before), append(s.stored, set.GetPolicy())
	}
	return err
}

// withdraw restores the policies from before, even after an interruption. It returns err, joined with errors about
// policies that it could not restore.
func (s *storedAges) withdraw(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for i, p := range s.stored {
		var failed error
		if before := s.before[i]; before == nil {
			_, failed = s.client.DeletePolicy(ctx, &cleanupv1.DeletePolicyRequest{Name: p.GetName(), Etag: p.GetEtag()})
		} else {
			before.Etag = p.GetEtag()
			_, failed = s.client.SetPolicy(ctx, &cleanupv1.SetPolicyRequest{Policy: before})
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("the policy %[1]s is still stored, and takes part in all runs; see cleanupd "+
				"policies get %[1]s: %[2]w", p.GetName(), failed))
		}
	}
	return err
}

// ask prints the policies that would stay, and returns the question whether to run. The question says how long the run
// can be undone.
func (s *storedAges) ask(w io.Writer, undo *durationpb.Duration) string {
	var changes []string
	for i, p := range s.stored {
		change, rows := "store", policies.Rows(p)
		if before := s.before[i]; before != nil {
			change, rows = "change", rows+"; so far "+policies.Rows(before)
		}
		rpc.PrintFact(w, "Policy", terminal.Printable(p.GetName()+" deletes "+rows))
		changes = append(changes, change+" the policy "+p.GetName())
	}
	if changes == nil {
		return "Run this, " + tolerance + "? It " + undone(undo)
	}
	text := strings.Join(changes, ", ") + " for all runs from now on, and run this, " + tolerance + "? The run " +
		undone(undo)
	return strings.ToUpper(text[:1]) + text[1:]
}

// keep prints which policies stay, and leaves nothing to withdraw.
func (s *storedAges) keep(cmd *cobra.Command) {
	for i, p := range s.stored {
		done := "Stored the policy"
		if s.before[i] != nil {
			done = "Changed the age of the policy"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %[2]s. It takes part in all runs from now on; cleanupd policies delete %[2]s "+
			"deletes it.\n", done, p.GetName())
	}
	s.stored = nil
}

// lookCommand returns the command that shows what policies by age would delete, and stores nothing.
func lookCommand(server *rpc.Server, ages policies.Ages) string {
	command := "cleanupd preview"
	for _, p := range ages {
		command += " --older-than " + format.ShellWord(policies.AgeOf(p.Policy))
	}
	url := "URL"
	if server.InProcess() {
		url = format.ShellWord(rpc.WithoutPassword(server.DatabaseURL()))
	}
	return command + " --database-url " + url
}
