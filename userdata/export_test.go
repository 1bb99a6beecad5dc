package userdata

// Entry is what is stored in the journal.
type Entry = entry
