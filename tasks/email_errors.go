package tasks

var emailErrors = Task{
	Name:        "email-errors",
	Title:       "E-mail errors",
	Description: "Last error replies (NmsEmailError) of mail exchangers without statistics.",
	Steps:       []Step{{On: table("NmsEmailError"), Rules: []Rule{{Orphan: exchanger}}}},
}

// exchanger is the link of a mail exchanger to its statistics.
var exchanger = &Link{Column: "iMXIP", Parent: "NmsEmailErrorStat", Key: "iMXIP"}
