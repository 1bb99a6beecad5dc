// Package version reports the version of this program for the command line, the API and the stored runs.
package version

import (
	"fmt"
	"runtime/debug"
)

// String also contains the version of Go.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", info.Main.Version, info.GoVersion)
}
