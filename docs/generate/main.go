// Command generate writes docs/reference/tasks.md, options.md, messages.md and settings.md into a folder, from the
// descriptions of tasks, options, messages and flags in the program itself.
package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/tasks"
)

//go:embed *.tmpl
var files embed.FS

var templates = template.Must(
	template.New("").
		Funcs(template.FuncMap{"code": code, "next": func(i int) int { return i + 1 }, "plural": message.Plural}).
		ParseFS(files, "*.tmpl"),
)

var pages = []string{"tasks.md", "options.md", "messages.md", "settings.md"}

func main() {
	for _, name := range pages {
		path := filepath.Join(os.Args[1], name)
		text, err := page(name)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a document is not secret
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func page(name string) (string, error) {
	options, err := options()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = templates.ExecuteTemplate(&text, name+".tmpl", map[string]any{
		"Tasks":    tasks.Pipeline,
		"Options":  options,
		"Themes":   themes(),
		"Settings": settings(),
	})
	return text.String(), err
}

type theme struct {
	Title string
	Kinds []*message.Kind
}

func themes() (list []theme) {
	for _, k := range message.Catalog() {
		if len(list) == 0 || list[len(list)-1].Title != k.Theme {
			list = append(list, theme{Title: k.Theme})
		}
		last := &list[len(list)-1]
		last.Kinds = append(last.Kinds, k)
	}
	return list
}

type setting struct{ Name, Default, What string }

type group struct {
	Title         string
	Help, Experts []setting
}

func settings() (list []group) {
	set := serve.NewCommand().Flags()
	describe := func(names []string) (list []setting) {
		for _, name := range names {
			f := set.Lookup(name)
			s := setting{Name: name, What: strings.ReplaceAll(f.Usage, "|", "\\|")}
			if f.DefValue != "" && f.DefValue != "[]" {
				s.Default = code([]string{f.DefValue})
			}
			list = append(list, s)
		}
		return list
	}
	for _, g := range serve.Settings {
		list = append(list, group{g.Title, describe(g.Help), describe(g.Experts)})
	}
	return list
}

type option struct {
	Field, Name, What, Default string
	Tasks                      []string // the tasks that read it
}

// options returns the options in the order of the message's fields.
func options() (list []option, err error) {
	var api struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Description string
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(cleanupd.OpenAPI), &api); err != nil {
		return nil, err
	}
	fields := (&cleanupv1.Options{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		o := option{Field: fields.Get(i).JSONName()}
		described := api.Components.Schemas["v1Options"].Properties[o.Field].Description
		described, of, ok := strings.Cut(described, " Default: ")
		if !ok { // callers cannot set it
			continue
		}
		o.Default = strings.TrimSuffix(of, ".")
		o.Name, o.What, _ = strings.Cut(strings.TrimSuffix(described, "."), ": ")
		for _, t := range tasks.Pipeline {
			if slices.Contains(t.OptionNames(), o.Name) {
				o.Tasks = append(o.Tasks, t.Name)
			}
		}
		list = append(list, o)
	}
	return list, nil
}

func code(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}
