package policies

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// Ages are policies by age, each of the form TABLE.COLUMN=AGE.
type Ages []Age

type Age struct{ *cleanupv1.Policy }

// Replaces reports whether the policy differs from another one in nothing but its age.
func (a Age) Replaces(before *cleanupv1.Policy) bool {
	same := proto.CloneOf(a.Policy)
	same.OlderThan.Age, same.Etag, same.Warnings = before.GetOlderThan().GetAge(), before.GetEtag(), before.GetWarnings()
	return proto.Equal(same, before)
}

func AddAgesFlag(f *pflag.FlagSet, ages *Ages) {
	f.Var(ages, "older-than",
		"TABLE.COLUMN=AGE: delete the rows of the table whose date in the column is older, such as 90d, 12h, or 0h for a "+
			"time at which rows expire; names may be quoted as in SQL; may be repeated")
	flags.WithoutVariable(f, "older-than")
}

// AgeOf returns the value of the flag that describes a policy by age.
func AgeOf(p *cleanupv1.Policy) string {
	place := p.GetTable() + "." + flags.Quote(p.GetOlderThan().GetColumn())
	if days := p.GetOlderThan().GetDays(); days > 0 {
		return fmt.Sprintf("%s=%dd", place, days)
	}
	return fmt.Sprintf("%s=%dh", place, p.GetOlderThan().GetHours())
}

func (a *Ages) String() string { return "" }

func (a *Ages) Type() string { return "TABLE.COLUMN=AGE" }

func (a *Ages) Set(text string) error {
	place, age, ok := flags.CutUnquoted(text, '=')
	table, column := flags.TableAndColumn(place)
	if !ok || table == "" || column == "" {
		return fmt.Errorf("must be TABLE.COLUMN=AGE, such as sessions.created_at=90d, not %q", text)
	}
	name := policy.NameOf(place, "")
	if slices.ContainsFunc(*a, func(other Age) bool { return other.GetName() == name }) {
		return fmt.Errorf("%s is given twice", place)
	}
	d, err := flags.ParseDuration(age)
	switch {
	case err != nil:
		return fmt.Errorf("the age %w", err)
	case d < 0 || d%time.Hour != 0:
		return fmt.Errorf("the age must be in whole days or hours, such as 90d or 12h, not %q", age)
	}
	p := &cleanupv1.Policy{
		Name:      name,
		Table:     table,
		Enabled:   true,
		OlderThan: &cleanupv1.OlderThan{Column: column},
	}
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		p.OlderThan.Age = &cleanupv1.OlderThan_Days{Days: int32(d / day)}
	} else {
		p.OlderThan.Age = &cleanupv1.OlderThan_Hours{Hours: int32(d / time.Hour)}
	}
	*a = append(*a, Age{p})
	return nil
}

// WarnOfEveryRow warns of policies that match every row of the past, as the server does when it stores them.
func WarnOfEveryRow(cmd *cobra.Command, list []*cleanupv1.Policy) {
	for _, p := range list {
		a := p.GetOlderThan()
		if a != nil && a.GetDays() == 0 && a.GetHours() == 0 && !capacity.IsExpiry(a.GetColumn()) {
			m := message.PolicyOfEveryRow.With("table", p.GetTable(), "column", a.GetColumn())
			fmt.Fprint(cmd.ErrOrStderr(), warning(p, &cleanupv1.Message{Text: m.Text}))
		}
	}
}

// ReadFile reads the policies of a file, or of the standard input if the name is "-".
func ReadFile(cmd *cobra.Command, name string) (list []*cleanupv1.Policy, err error) {
	entries, err := readFile(cmd, name)
	for _, e := range entries {
		list = append(list, e.policy)
	}
	return list, err
}
