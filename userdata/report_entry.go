package userdata

import "github.com/cleanupd/cleanupd/userdata/forms"

// Entry is an entry of the journal: the effects of one transaction of an erasure in the Forms database.
type entry struct {
	Kind     string          `json:"Kind,omitempty"`     // the kind of Items and Kept
	Items    []int64         `json:"Items,omitempty"`    // the items that were erased
	Kept     []int64         `json:"Kept,omitempty"`     // the items that were not erased; an event has the reason
	Rows     forms.Rows      `json:"Rows,omitempty"`     // deleted rows
	Sessions []forms.Session `json:"Sessions,omitempty"` // sessions whose documents must be deleted afterwards
	Settled  []string        `json:"Settled,omitempty"`  // sessions whose documents have been deleted
	Events   []Event         `json:"Events,omitempty"`
}
