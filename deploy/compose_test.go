package deploy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// The compose file is valid, sets variables of serve, asks the program in the image for its health, and publishes only
// on loopback.
func composeFits(t *testing.T, known map[string]bool) {
	project, err := loader.LoadWithContext(
		t.Context(),
		types.ConfigDetails{
			WorkingDir:  ".",
			ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(read(t, "compose.yaml"))}},
		},
		func(o *loader.Options) { o.SetProjectName("cleanupd", true) },
	)
	if err != nil {
		t.Fatal(err)
	}
	own, database := project.Services["cleanupd"], project.Services["postgres"]
	for name := range own.Environment {
		if !known[name] {
			t.Errorf("%s is no variable of serve", name)
		}
	}
	if wait, err := time.ParseDuration(*own.Environment["CLEANUPD_WAIT_FOR_DATABASE"]); err != nil ||
		wait < 10*time.Second {
		t.Errorf("it waits %s: %v", wait, err)
	}
	_, last := stages(t)
	if program := only[*instructions.EntrypointCommand](t, last).CmdLine[0]; !slices.Equal(
		own.HealthCheck.Test, []string{"CMD", program, "health"},
	) {
		t.Errorf("its health is asked by %v", own.HealthCheck.Test)
	}
	var published []string
	for _, p := range slices.Concat(own.Ports, database.Ports) {
		published = append(published, p.HostIP+":"+p.Published)
	}
	if strings.Join(published, " ") != "127.0.0.1:9090 127.0.0.1:8080" {
		t.Errorf("it publishes %v", published)
	}
	if !strings.Contains(
		*own.Environment["CLEANUPD_DATABASE_URL"],
		"//"+*database.Environment["POSTGRES_USER"]+"@postgres/"+*database.Environment["POSTGRES_DB"],
	) {
		t.Error("it connects to another database")
	}
}
