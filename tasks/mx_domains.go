package tasks

var mxDomains = Task{
	Name:        "mx-domains",
	Title:       "Mail exchangers' domains",
	Description: "Domains (NmsMxDomain) of mail exchangers without statistics.",
	Requires:    []string{"email-error-stats"},
	Steps:       []Step{{On: table("NmsMxDomain"), Rules: []Rule{{Orphan: exchanger}}}},
}
