package tasks

var sessions = Task{
	Name:        "sessions",
	Title:       "Expired sessions",
	Description: "Sessions (XtkSessionInfo) that have expired.",
	Steps:       []Step{{On: table("XtkSessionInfo"), Rules: []Rule{{Where: "tsExpiration < @now"}}}},
}
