package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

const unitFile = "cleanupd.service"

func service(t *testing.T) map[string][]string {
	t.Helper()
	options, err := unit.DeserializeOptions(strings.NewReader(read(t, unitFile)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, o := range options {
		if o.Section == "Service" {
			found[o.Name] = append(found[o.Name], o.Value)
		}
	}
	return found
}

func TestUnit(t *testing.T) {
	t.Parallel()
	options := service(t)
	for name, want := range map[string]string{
		"ExecStart":                "/usr/local/bin/cleanupd serve",
		"EnvironmentFile":          "/etc/cleanupd/cleanupd.env",
		"Restart":                  "on-failure",
		"RestartPreventExitStatus": "2",
		"SetCredential":            "tokens:#",
		"DynamicUser":              "yes",
		"NoNewPrivileges":          "yes",
		"ProtectSystem":            "strict",
		"ProtectHome":              "yes",
		"PrivateTmp":               "yes",
		"PrivateDevices":           "yes",
		"CapabilityBoundingSet":    "",
		"AmbientCapabilities":      "",
		"MemoryDenyWriteExecute":   "yes",
		"RestrictAddressFamilies":  "AF_INET AF_INET6 AF_UNIX",
		"SystemCallArchitectures":  "native",
		"RestrictNamespaces":       "yes",
		"UMask":                    "0077",
	} {
		if !slices.Equal(options[name], []string{want}) {
			t.Errorf("%s is %q, not %q", name, options[name], want)
		}
	}
	if options["SystemCallFilter"][0] != "@system-service" {
		t.Errorf("it may call %v", options["SystemCallFilter"])
	}
	if limit, err := time.ParseDuration(options["TimeoutStopSec"][0]); err != nil || limit <= stopping {
		t.Errorf("it is killed after %s, %v", limit, err)
	}
}

// The unit and the example set variables of serve, and refer to the files that systemd passes on.
func unitVariables(t *testing.T, known map[string]bool) {
	options := service(t)
	for _, pair := range strings.Fields(strings.Join(options["Environment"], " ")) {
		name, value, _ := strings.Cut(pair, "=")
		credential := strings.TrimPrefix(value, "%d/")
		if (!known[name] && name != "PGPASSFILE") ||
			!slices.Contains(options["LoadCredential"], credential+":/etc/cleanupd/"+credential) {
			t.Errorf("%s is no variable of serve, or no credential", pair)
		}
	}
	var given []string
	for line := range strings.Lines(read(t, "cleanupd.env.example")) {
		if m := regexp.MustCompile(`^#?(\w+)=\S`).FindStringSubmatch(line); m != nil {
			given = append(given, m[1])
		} else if !regexp.MustCompile(`^(# .*)?\n$`).MatchString(line) {
			t.Errorf("systemd does not understand %q", line)
		}
	}
	for _, name := range given {
		if !known[name] {
			t.Errorf("%s is no variable of serve", name)
		}
	}
	if !strings.Contains(read(t, unitFile), "PGPASSFILE=%d/pgpass") ||
		strings.Contains(read(t, "cleanupd.env.example"), ":PASSWORD@") {
		t.Error("a password of a database is in the environment")
	}
	if !slices.Contains(given, "CLEANUPD_DATABASE_URL") {
		t.Errorf("the example gives %v", given)
	}
}

// The greatest exposure level allowed, in tenths, as computed by systemd-analyze. What remains is mainly access to the
// network.
const exposure = "12"

// systemd accepts the unit, and rates it as safe.
func unitBySystemd(t *testing.T, program string) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil && os.Getenv("CI") == "" {
		t.Skip("systemd does not judge the unit here: ", err)
	}
	installed := filepath.Join(t.TempDir(), unitFile)
	text := strings.ReplaceAll(read(t, unitFile), "/usr/local/bin/cleanupd", program)
	if err := os.WriteFile(installed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", "--recursive-errors=no", installed},
		{"security", "--offline=true", "--no-pager", "--threshold=" + exposure, installed},
	} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || (args[0] == "verify" && len(out) > 0) {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
