package tasklist

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Profile says which tasks a database has.
type Profile string

const (
	// Auto stands for Campaign if the database has tables of the application, otherwise for None.
	Auto Profile = "auto"
	// Campaign has the tasks of package tasks, which fail without the application's tables.
	Campaign Profile = "campaign"
	// None has none of these tasks.
	None Profile = "none"
)

var Profiles = []string{string(Auto), string(Campaign), string(None)}

func (p *Profile) String() string { return string(*p) }

func (p *Profile) Set(text string) error {
	for _, name := range Profiles {
		if text == name {
			*p = Profile(name)
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(Profiles, ", "))
}

func (*Profile) Type() string { return "string" }

// NoCampaign reports whether the database has none of the built-in tasks.
func (p Profile) NoCampaign(ctx context.Context, db campaign.Querier) (bool, error) {
	switch p {
	case None:
		return true, nil
	case Auto, "":
		known, err := campaign.HasKnownTables(ctx, db)
		return !known, err
	}
	return false, nil
}
