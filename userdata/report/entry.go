package report

// Entry is an entry of the journal: the effects of one transaction of an erasure in the Forms database.
type Entry struct {
	Kind     string    `json:"Kind,omitempty"`     // the kind of Items and Kept
	Items    []int64   `json:"Items,omitempty"`    // the items that were erased
	Kept     []int64   `json:"Kept,omitempty"`     // the items that were not erased; an event has the reason
	Rows     Rows      `json:"Rows,omitempty"`     // deleted rows
	Sessions []Session `json:"Sessions,omitempty"` // sessions whose documents must be deleted afterwards
	Settled  []string  `json:"Settled,omitempty"`  // sessions whose documents have been deleted
	Events   []Event   `json:"Events,omitempty"`
}

// Session is a session and the process instance or orphan task that its documents belong to.
type Session struct {
	ID   string `json:"ID"`
	Item int64  `json:"Item"`
}
