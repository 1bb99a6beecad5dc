// Package severity has the levels of the messages in the logs of runs and erasures.
package severity

type Level string

const (
	Info    Level = "INFO"
	Warning Level = "WARNING"
	Error   Level = "ERROR"
)
