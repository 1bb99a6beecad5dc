package binding

import (
	"slices"

	"github.com/cleanupd/cleanupd/tasks/plan"
)

type Parents struct {
	// IDs are the parents whose dependent rows are deleted.
	IDs []int64
	// RowsOnHold are the parents among IDs whose own rows are retained, because rows that depend on them are on hold.
	RowsOnHold []int64
}

func (p Parents) Own() []int64 { return Without(p.IDs, p.RowsOnHold) }

// Of returns the parents for a job. A job on the parents' own rows gets only those that are not retained.
func (p Parents) Of(j plan.Job) []int64 {
	if j.Step.OfParents {
		return p.Own()
	}
	return p.IDs
}

func set(ids []int64) map[int64]bool {
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func Without(ids, others []int64) []int64 {
	if len(others) == 0 {
		return ids
	}
	excluded := set(others)
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return excluded[id] })
}

func Intersection(ids, others []int64) (both []int64) {
	among := set(others)
	for _, id := range ids {
		if among[id] {
			both = append(both, id)
		}
	}
	return both
}
