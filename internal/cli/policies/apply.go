package policies

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// ErrDiffers is returned by a dry run of apply if the stored policies differ from the file.
var ErrDiffers = errors.New("the stored policies differ from the file; it was a dry run: nothing was changed")

type applier struct {
	cmd    *cobra.Command
	server *rpc.Server
	client cleanupd.Client
	output format.Output

	prune, yes, dryRun bool

	warned map[string]bool // warnings that were printed
}

func newApply(server *rpc.Server, output *format.Output) *cobra.Command {
	var a applier
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Show how stored policies differ from a file, ask, and store those of the file",
		Long: "Show how stored policies differ from a file, ask for confirmation, and store those of the file. The\n" +
			"file is YAML or JSON: a list under policies, or documents separated by ---, each with a policy; - is\n" +
			"the standard input. The fields are those of the API; cleanupd policies export prints such a file.\n" +
			"The server checks all policies first: nothing is changed if one is wrong, or if somebody else\n" +
			"changes policies meanwhile. Stored policies that the file does not have are kept without --prune.\n" +
			"With --dry-run the exit status is 0 if nothing differs, and 3 if something does.",
		Example: "  cleanupd policies apply policies.yaml\n  cleanupd policies apply policies.yaml --dry-run\n" +
			"  cleanupd policies apply policies.yaml --prune --yes",
		Args:              flags.OneArgument("a file with policies"),
		ValidArgsFunction: rpc.FirstArgument(flags.CompleteFiles),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			a.cmd, a.server, a.client, a.output = cmd, server, client, *output
			a.warned = map[string]bool{}
			return a.apply(args[0])
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&a.prune, "prune", false, "delete stored policies that the file does not have")
	f.BoolVar(&a.yes, "yes", false, "do not ask")
	f.BoolVar(&a.dryRun, "dry-run", false, "change nothing, show what differs")
	return cmd
}

// apply asks for confirmation before it changes anything.
func (a *applier) apply(file string) error {
	entries, err := readFile(a.cmd, file)
	if err != nil {
		return err
	}
	if err := checkFirst(a.cmd.Context(), a.server, file, entries); err != nil {
		return err
	}
	stored, err := a.stored()
	if err != nil {
		return err
	}
	checked, err := a.check(file, entries, stored)
	if err != nil {
		return err
	}
	changes := a.compare(checked, stored)
	if err := a.show(changes, len(checked)); err != nil {
		return err
	}
	a.warn(checked...)
	switch {
	case len(changes) == 0:
		return nil
	case a.dryRun:
		return ErrDiffers
	case !a.yes && !terminal.CanAsk():
		return flags.Errorf(
			"nothing was changed: applying needs confirmation, and there is no terminal to ask on: give --yes")
	case !a.yes:
		if err := rpc.PrintTarget(a.cmd, a.server, a.client); err != nil {
			return err
		}
		if !terminal.Confirm(a.cmd, "Apply this?") {
			return errors.New("nothing was changed")
		}
	}
	if err := a.checkUnchanged(changes); err != nil {
		return err
	}
	var set []*cleanupv1.Policy
	for i, c := range changes {
		p, err := a.carryOut(c)
		if err != nil {
			return a.explainPartly(c, i, len(changes), err)
		}
		set = append(set, p)
	}
	a.warn(set...) // about what the other policies of the file changed
	fmt.Fprintln(a.report(), "Applied.")
	return nil
}

// report returns where the difference is printed. It must not be mixed with the API's responses in other formats.
func (a *applier) report() io.Writer {
	if a.output == format.Table {
		return a.cmd.OutOrStdout()
	}
	return a.cmd.ErrOrStderr()
}

// stored returns nil if there is no schema cleanupd.
func (a *applier) stored() (map[string]*cleanupv1.Policy, error) {
	resp, err := listPolicies(a.cmd.Context(), a.client, rpc.Raw())
	if errors.Is(err, migrate.ErrNoSchema) {
		return nil, nil
	}
	byName := map[string]*cleanupv1.Policy{}
	for _, p := range resp.GetPolicies() {
		byName[p.GetName()] = p
	}
	return byName, err
}

// check lets the server check all policies of the file, and returns them as it would store them. The error joins the
// mistakes of all policies, and the rights that they lack. Without a schema cleanupd, which only a change creates, it
// returns the policies as they are: checkFirst has checked them.
func (a *applier) check(
	file string, entries []entry, stored map[string]*cleanupv1.Policy,
) (checked []*cleanupv1.Policy, err error) {
	if stored == nil {
		for _, e := range entries {
			checked = append(checked, e.policy)
		}
		return checked, nil
	}
	var (
		wrong   []error
		missing rules.MissingRights
	)
	for _, e := range entries {
		resp, err := a.client.SetPolicy(a.cmd.Context(),
			&cleanupv1.SetPolicyRequest{Policy: e.policy, ValidateOnly: true}, rpc.Raw())
		lacks := rules.ParseMissingRights(status.Convert(err).Message())
		switch {
		case lacks != nil:
			missing = rules.AddGrants(missing, lacks...)
		case isRefusal(err):
			wrong = append(wrong, e.explain(err))
		case err != nil:
			return nil, err
		}
		checked = append(checked, resp.GetPolicy())
	}
	if missing != nil {
		wrong = append(wrong, &rightsError{missing, grantsCommand(a.server, file)})
	}
	return checked, errors.Join(wrong...)
}

func (a *applier) compare(checked []*cleanupv1.Policy, stored map[string]*cleanupv1.Policy) (changes []change) {
	rest := maps.Clone(stored)
	for _, p := range checked {
		delete(rest, p.GetName())
		if c := (change{stored: stored[p.GetName()], wanted: p}); c.differs() {
			changes = append(changes, c)
		}
	}
	if a.prune {
		for _, name := range slices.Sorted(maps.Keys(rest)) {
			changes = append(changes, change{stored: stored[name]})
		}
	}
	return changes
}

// show prints the changes, and how many there are of each kind.
func (a *applier) show(changes []change, inFile int) error {
	var created, changed, deleted int
	w := a.report()
	for _, c := range changes {
		switch {
		case c.stored == nil:
			created++
		case c.wanted == nil:
			deleted++
		default:
			changed++
		}
		if err := c.print(w); err != nil {
			return err
		}
		if c.wanted != nil && a.dryRun && a.output != format.Table {
			if err := a.output.PrintMessage(a.cmd.OutOrStdout(), setResponse(c.wanted)); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(w, "%d new, %d changed, %d deleted, %d unchanged\n", created, changed, deleted, inFile-created-changed)
	return nil
}

// warn prints the warnings about policies once, and one line with all policies whose rules have not run yet.
func (a *applier) warn(policies ...*cleanupv1.Policy) {
	var unproven []string
	for _, p := range policies {
		for _, w := range p.GetWarnings() {
			text := warning(p, w)
			switch {
			case a.warned[text]:
			case w.GetCode() == message.PolicyUnproven.Code:
				unproven = append(unproven, p.GetName())
			default:
				fmt.Fprint(a.cmd.ErrOrStderr(), text)
			}
			a.warned[text] = true
		}
	}
	if unproven != nil {
		fmt.Fprintf(a.cmd.ErrOrStderr(),
			"These rules have never run, and need a preview (cleanupd run --preview), or the guard policy refuses them: %s\n",
			strings.Join(unproven, ", "))
	}
}

func setResponse(p *cleanupv1.Policy) *cleanupv1.SetPolicyResponse {
	return &cleanupv1.SetPolicyResponse{Policy: p}
}

// errChanged means that policies changed after they were shown to the user and before the user confirmed the
// changes.
var errChanged = errors.New(
	"nothing was changed: somebody else changed the same policies meanwhile; run the command again")

// checkUnchanged fails if the policies to change are no longer those that were shown. Later changes are refused because
// of the etags, unless someone else creates a policy of the same name.
func (a *applier) checkUnchanged(changes []change) error {
	now, err := a.stored()
	if err != nil {
		return err
	}
	for _, c := range changes {
		if now[c.name()].GetEtag() != c.stored.GetEtag() {
			return errChanged
		}
	}
	return nil
}

// carryOut returns the policy as it is stored; nil if it is deleted.
func (a *applier) carryOut(c change) (*cleanupv1.Policy, error) {
	if c.wanted == nil {
		_, err := a.client.DeletePolicy(a.cmd.Context(), &cleanupv1.DeletePolicyRequest{
			Name: c.name(),
			Etag: c.stored.GetEtag(),
		})
		return nil, err
	}
	wanted := proto.CloneOf(c.wanted)
	wanted.Etag, wanted.Warnings = c.stored.GetEtag(), nil
	resp, err := a.client.SetPolicy(a.cmd.Context(), &cleanupv1.SetPolicyRequest{Policy: wanted})
	if err != nil || a.output == format.Table {
		return resp.GetPolicy(), err
	}
	return resp.GetPolicy(), a.output.PrintMessage(a.cmd.OutOrStdout(), resp)
}

// explainPartly says how many changes were carried out before the error.
func (a *applier) explainPartly(failed change, done, all int, err error) error {
	text := status.Convert(err).Message()
	if status.Code(err) == codes.Aborted {
		text = "somebody else changed it meanwhile"
	}
	return fmt.Errorf("policy %s: %s; %d of %d changes were applied: run the command again", failed.name(), text, done,
		all)
}

type change struct {
	stored *cleanupv1.Policy // nil if the policy is created
	wanted *cleanupv1.Policy // nil if it is deleted; as the server would store it
}

func (c change) name() string {
	if c.wanted == nil {
		return c.stored.GetName()
	}
	return c.wanted.GetName()
}

func (c change) differs() bool {
	return c.stored == nil || c.wanted == nil || !proto.Equal(withoutServers(c.stored), withoutServers(c.wanted))
}

func withoutServers(p *cleanupv1.Policy) *cleanupv1.Policy {
	p = proto.CloneOf(p)
	p.Etag, p.Warnings = "", nil
	return p
}

// print prints each line of the old policy that the new one lacks, and vice versa.
func (c change) print(w io.Writer) error {
	title := "changes"
	switch {
	case c.stored == nil:
		title = "is new"
	case c.wanted == nil:
		title = "is deleted"
	}
	fmt.Fprintf(w, "%s %s\n", c.name(), title)
	before, err := lines(c.stored)
	if err != nil {
		return err
	}
	after, err := lines(c.wanted)
	if err != nil {
		return err
	}
	for _, line := range merged(before, after) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	return nil
}

// merged returns the lines that only one of the two lists has, with a sign. A line that replaces a line of the same
// field comes right after it.
func merged(before, after []string) (out []string) {
	field := func(line string) string { return line[:strings.Index(line, ": ")] }
	shown := map[string]bool{}
	for _, old := range before {
		if slices.Contains(after, old) {
			continue
		}
		out = append(out, "- "+old)
		for _, line := range after {
			if field(line) == field(old) {
				out, shown[line] = append(out, "+ "+line), true
			}
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) && !shown[line] {
			out = append(out, "+ "+line)
		}
	}
	return out
}

// lines returns one line per value, such as `olderThan.days: 30`, except for the name; none for nil.
func lines(p *cleanupv1.Policy) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	p = proto.CloneOf(p)
	p.Name = ""
	return appendLines(nil, "", messageNode(p.ProtoReflect()))
}

// appendLines adds a line for each element of a list.
func appendLines(list []string, path string, n *yaml.Node) ([]string, error) {
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content) && err == nil; i += 2 {
			list, err = appendLines(list, join(path, n.Content[i].Value), n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i := 0; i < len(n.Content) && err == nil; i++ {
			list, err = appendLine(list, fmt.Sprintf("%s[%d]", path, i), n.Content[i])
		}
	default:
		list, err = appendLine(list, path, n)
	}
	return list, err
}

func appendLine(list []string, path string, n *yaml.Node) ([]string, error) {
	n.Style |= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "\n") {
		n.Style = yaml.DoubleQuotedStyle
	}
	text, err := encodeNode(n)
	return append(list, path+": "+strings.TrimSpace(text)), err
}
