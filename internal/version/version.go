package version

import (
	"fmt"
	"runtime/debug"
)

// programVersion is the version of this program, and of Go.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", info.Main.Version, info.GoVersion)
}
