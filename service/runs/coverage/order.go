package coverage

import (
	"cmp"
	"slices"
	"strings"
)

type Order string

// The greatest value comes first, except with names.
const (
	ByName   Order = "NAME"
	ByBytes  Order = "BYTES"
	ByGrowth Order = "GROWTH"
	ByRows   Order = "ROWS"
)

// Key is the position of a table in a list. It remains valid if tables change or are dropped.
type Key struct {
	Order Order
	// Value is what the list is ordered by; unknown values come last.
	Value   int64
	Unknown bool
	Name    string
}

func (o Order) key(t *Table) Key {
	k := Key{Order: o, Name: t.Name}
	switch o {
	case ByBytes:
		k.Value = t.Size()
	case ByRows:
		k.Value = t.Rows
	case ByGrowth:
		if k.Unknown = t.Week == nil; !k.Unknown {
			k.Value = *t.Week
		}
	}
	return k
}

func (k Key) compare(other Key) int {
	if k.Unknown != other.Unknown {
		if k.Unknown {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(other.Value, k.Value), strings.Compare(k.Name, other.Name))
}

// cut returns the page after q.After. next is the position of the page's last table if more tables follow.
func (q Query) cut(all []*Table) (page []*Table, next Key) {
	for _, t := range all {
		if q.UncoveredOnly && len(t.CoveredBy) > 0 {
			continue
		}
		if q.After == (Key{}) || q.Order.key(t).compare(q.After) > 0 {
			page = append(page, t)
		}
	}
	slices.SortFunc(page, func(a, b *Table) int { return q.Order.key(a).compare(q.Order.key(b)) })
	if len(page) > q.Size {
		page = page[:q.Size]
		next = q.Order.key(page[q.Size-1])
	}
	return page, next
}
