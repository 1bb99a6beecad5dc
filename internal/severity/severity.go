// Package severity has the levels of the messages in the logs of runs and erasures.
package severity

// Level is how severe a message is.
type Level string

// Levels.
const (
	Info    Level = "INFO"
	Warning Level = "WARNING"
	Error   Level = "ERROR"
)
