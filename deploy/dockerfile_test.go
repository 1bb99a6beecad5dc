package deploy_test

import (
	"debug/elf"
	"fmt"
	"go/version"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

func stages(t *testing.T) (all []instructions.Stage, last instructions.Stage) {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	all, _, err = instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all, all[len(all)-1]
}

func only[C instructions.Command](t *testing.T, s instructions.Stage) (found C) {
	t.Helper()
	n := 0
	for _, c := range s.Commands {
		if c, ok := c.(C); ok {
			found = c
			n++
		}
	}
	if n != 1 {
		t.Fatalf("stage %s has %d of %T", s.BaseName, n, found)
	}
	return found
}

// The command that builds the program, and where it puts it.
func goBuild(t *testing.T) (command, output string) {
	t.Helper()
	all, _ := stages(t)
	for _, c := range all[0].Commands {
		if run, ok := c.(*instructions.RunCommand); ok && strings.Contains(run.CmdLine[0], "go build") {
			command = run.CmdLine[0]
		}
	}
	if m := regexp.MustCompile(` -o (\S+) `).FindStringSubmatch(command); m != nil {
		return command, m[1]
	}
	t.Fatalf("%q builds nothing", command)
	return "", ""
}

// Built with the Dockerfile's own command.
func build(t *testing.T) (program string) {
	t.Helper()
	command, output := goBuild(t)
	program = filepath.Join(t.TempDir(), "cleanupd")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, " "+output+" ", " "+program+" ", 1))
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return program
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	all, last := stages(t)
	if last.BaseName != "scratch" {
		t.Errorf("the image stands on %s", last.BaseName)
	}
	for _, s := range all[:len(all)-1] {
		if !regexp.MustCompile(`:\d+\.\d+\.\d+`).MatchString(s.BaseName) {
			t.Errorf("%s is any version", s.BaseName)
		}
	}
	oldest := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "../go.mod"))[1]
	if m := regexp.MustCompile(`^golang:([\d.]+)-`).
		FindStringSubmatch(all[0].BaseName); m == nil ||
		version.Compare("go"+m[1], "go"+oldest) < 0 {
		t.Errorf("%s is no Go %s", all[0].BaseName, oldest)
	}
	if user := only[*instructions.UserCommand](t, last).User; !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).
		MatchString(user) {
		t.Errorf("the user is %q: not a number, or root", user)
	}
	entry := only[*instructions.EntrypointCommand](t, last)
	if command := only[*instructions.CmdCommand](t, last); entry.PrependShell || command.PrependShell ||
		!slices.Equal(command.CmdLine, []string{"serve"}) {
		t.Errorf("it starts %q %q", entry.CmdLine, command.CmdLine)
	}
	_, output := goBuild(t)
	copied := func(c instructions.Command) bool {
		copied, ok := c.(*instructions.CopyCommand)
		return ok && copied.From == all[0].Name && slices.Equal(copied.SourcePaths, []string{output}) &&
			slices.Equal(entry.CmdLine, []string{copied.DestPath})
	}
	if !slices.ContainsFunc(last.Commands, copied) {
		t.Errorf("%s is not what was built", entry.CmdLine)
	}
}

// The image of a release runs the program as the other one does.
func TestReleaseImage(t *testing.T) {
	t.Parallel()
	parsed, err := parser.Parse(strings.NewReader(read(t, "release.Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	settings := func(s instructions.Stage) (list []string) {
		for _, c := range s.Commands {
			if text := fmt.Sprint(c); !strings.HasPrefix(text, "COPY") && !strings.HasPrefix(text, "ARG") {
				list = append(list, text)
			}
		}
		return list
	}
	built, last := stages(t)
	if release := all[len(all)-1]; release.BaseName != last.BaseName ||
		!slices.Equal(settings(release), settings(last)) ||
		all[0].BaseName != built[0].BaseName {
		t.Errorf("%v, and not %v", settings(release), settings(last))
	}
}

func imageListens(t *testing.T, known map[string]bool) {
	_, last := stages(t)
	var ports []string
	for _, v := range only[*instructions.EnvCommand](t, last).Env {
		if !known[v.Key] {
			t.Errorf("%s is no variable of serve", v.Key)
		}
		ports = append(ports, v.Value[strings.LastIndex(v.Value, ":")+1:])
	}
	slices.Sort(ports) // as the parser does
	if exposed := only[*instructions.ExposeCommand](t, last).Ports; !slices.Equal(exposed, ports) {
		t.Errorf("%v are exposed, it listens on %v", exposed, ports)
	}
}

// The image has no shared libraries, so the program must be static.
func staticBinary(t *testing.T, program string) {
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it is linked with %v, %v", libraries, err)
	}
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("it needs a dynamic linker")
	}
	if out, err := exec.CommandContext(t.Context(), program, "version").
		Output(); err != nil ||
		!strings.HasPrefix(string(out), "cleanupd ") {
		t.Errorf("version: %s, %v", out, err)
	}
}
