// Package deploy_test checks that the deployment files fit the program.
package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// All deployment files fit the program, built as in the Dockerfile.
func TestProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("it is deployed on Linux")
	}
	program := build(t)
	known := serveVariables(t, program)
	t.Run("static binary", func(t *testing.T) { staticBinary(t, program) })
	t.Run("image listens", func(t *testing.T) { imageListens(t, known) })
	t.Run("unit variables", func(t *testing.T) { unitVariables(t, known) })
	t.Run("unit by systemd", func(t *testing.T) { unitBySystemd(t, program) })
	t.Run("pod variables", func(t *testing.T) { podVariables(t, known) })
	t.Run("compose", func(t *testing.T) { composeFits(t, known) })
	t.Run("settings of the chart", func(t *testing.T) { chartSettings(t, program) })
	t.Run("nightly runs", func(t *testing.T) { nightlyRuns(t, program) })
	t.Run("nightly by systemd", func(t *testing.T) { nightlyBySystemd(t, program) })
	t.Run("pod serves", func(t *testing.T) { podServes(t, program) })
}

// The longest that the program takes to stop: three times service.stopTimeout, during which runs.grace passes, too.
const stopping = 15 * time.Second

// Environment variables of `cleanupd serve`, from its list of settings.
func serveVariables(t *testing.T, program string) map[string]bool {
	t.Helper()
	settings, err := exec.CommandContext(t.Context(), program, "settings").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#([a-z-]+):`).FindAllSubmatch(settings, -1) {
		known["CLEANUPD_"+strings.ToUpper(strings.ReplaceAll(string(m[1]), "-", "_"))] = true
	}
	return known
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
