package tasks

var emailErrors = Task{
	Name:        "email-errors",
	Title:       "E-mail errors",
	Description: "Last error replies (NmsEmailError) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []Step{{On: table("NmsEmailError"), Rules: []Rule{{Orphan: exchanger}}}},
}

// exchanger is the link to a mail exchanger's statistics. An empty table of them is trusted once the task email-error-stats
// has coalesced them.
var exchanger = &Link{Column: "iMXIP", Parent: "NmsEmailErrorStat", Key: "iMXIP", EmptyAfter: "email-error-stats"}
