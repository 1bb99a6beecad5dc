package worktables

import (
	"context"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

const FirstGroup = 8

type Blocked struct {
	campaign.WorkTable
	Message message.Message
}

// Dropper drops the given tables or views that are unused, and returns those that it could not drop, with the
// reason. Either all or none of them are views.
type Dropper func(ctx context.Context, k Kind, tables []campaign.WorkTable) ([]Blocked, error)

// DropAll drops the unused tables of all kinds. Views come first, since they may depend on tables of another kind.
// A blocked table is tried again as long as others are dropped. messages are about the tables that remain blocked.
func DropAll(ctx context.Context, kinds []Kind, drop Dropper) (messages []message.Message, err error) {
	for before := 0; ; before = len(messages) {
		messages = nil
		blocked := make([][]campaign.WorkTable, len(kinds))
		for _, views := range []bool{true, false} {
			for i, k := range kinds {
				remaining, err := drop(ctx, k, OfKind(k.Tables, views))
				if err != nil {
					return nil, err
				}
				for _, b := range remaining {
					blocked[i], messages = append(blocked[i], b.WorkTable), append(messages, b.Message)
				}
			}
		}
		if len(messages) == 0 || len(messages) == before {
			return messages, nil
		}
		for i := range kinds {
			kinds[i].Tables = blocked[i]
		}
	}
}
