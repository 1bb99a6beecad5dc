package flags

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// AddSettingsFile adds --config, which sets the flags that are given neither on the command line nor by a variable.
func AddSettingsFile(f *pflag.FlagSet) {
	f.String("config", "",
		"a file of settings in YAML, whose keys are the names of the flags of serve; cleanupd settings prints one")
}

// ReadSettings sets the flags that were not given on the command line: from the environment, and then, if the set
// has --config, from that file. Its keys are flags of serve, of which a command may have only some.
func ReadSettings(set, serve *pflag.FlagSet) error {
	if err := ReadEnvironment(set); err != nil {
		return err
	}
	config := set.Lookup("config")
	if config == nil || config.Value.String() == "" {
		return nil
	}
	file := config.Value.String()
	settings, err := settingsOf(file)
	if err != nil {
		return Errorf("--config: %w", err)
	}
	var errs []error
	given := map[string]bool{}
	for _, s := range settings {
		err := s.check(serve, given)
		if err == nil {
			err = s.apply(set)
		}
		if err != nil {
			errs = append(errs, Errorf("--config: %s:%d: %w", file, s.line, err))
		}
	}
	return errors.Join(errs...)
}

// setting is a line of the form NAME: VALUE.
type setting struct {
	name  string
	line  int
	value *yaml.Node
}

// check fails if serve has no such setting, or if the file has given it before.
func (s setting) check(serve *pflag.FlagSet, given map[string]bool) error {
	if f := serve.Lookup(s.name); f == nil || !HasVariable(f) || s.name == "config" {
		return fmt.Errorf("there is no setting %q%s", s.name, Similar(s.name, names(serve)))
	}
	if given[s.name] {
		return fmt.Errorf("%s is set twice", s.name)
	}
	given[s.name] = true
	return nil
}

// apply sets the flag, if the set has it and neither the command line nor the environment did.
func (s setting) apply(set *pflag.FlagSet) error {
	f := set.Lookup(s.name)
	if f == nil || f.Changed {
		return nil
	}
	values, err := valuesOf(s.value, f)
	if err != nil {
		return err
	}
	for _, value := range values {
		if err := explainValue(set.Set(s.name, value)); err != nil {
			return err
		}
	}
	return nil
}

func settingsOf(file string) (settings []setting, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	root, err := onlyDocument(file, f)
	switch {
	case err != nil:
		return nil, err
	case root == nil || root.Tag == "!!null": // it has only comments
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, fmt.Errorf("%s:%d: it must have lines of the form NAME: VALUE", file, root.Line)
	}
	for pair := range slices.Chunk(root.Content, 2) {
		settings = append(settings, setting{pair[0].Value, pair[0].Line, pair[1]})
	}
	return settings, nil
}

// onlyDocument returns nil if the file has no document.
func onlyDocument(file string, r io.Reader) (*yaml.Node, error) {
	var document, another yaml.Node
	d := yaml.NewDecoder(r)
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if !errors.Is(d.Decode(&another), io.EOF) {
		return nil, fmt.Errorf("%s has more than one document", file)
	}
	return document.Content[0], nil
}

// valuesOf returns one value, or those of the list that a flag that may be repeated can have.
func valuesOf(node *yaml.Node, f *pflag.Flag) (values []string, err error) {
	list := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		if !repeats(f) {
			return nil, fmt.Errorf("%s has one value, not a list", f.Name)
		}
		list = node.Content
	}
	for _, item := range list {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return nil, fmt.Errorf("%s has no value", f.Name)
		}
		values = append(values, item.Value)
	}
	return values, nil
}

func repeats(f *pflag.Flag) bool { return f.Value.Type() == "stringArray" }

func names(set *pflag.FlagSet) (list []string) {
	set.VisitAll(func(f *pflag.Flag) { list = append(list, f.Name) })
	return list
}

// Group is a theme of flags. Experts are left out of the help.
type Group struct {
	Title         string
	Help, Experts []string
}

func (g Group) Names() []string { return slices.Concat(g.Help, g.Experts) }

const groupOf = "cleanupd_group"

// Arrange shows flags in groups, and hides those for experts. It panics if a group has an unknown flag.
func Arrange(set *pflag.FlagSet, groups []Group) {
	set.SortFlags = false
	for _, group := range groups {
		for _, name := range group.Names() {
			if err := set.SetAnnotation(name, groupOf, []string{group.Title}); err != nil {
				panic(err)
			}
		}
		for _, name := range group.Experts {
			set.Lookup(name).Hidden = true
		}
	}
}

// Usages describes flags, wrapped to a width, under the titles of their groups.
func Usages(set *pflag.FlagSet, width int) string {
	var titles []string
	sets := map[string]*pflag.FlagSet{}
	set.VisitAll(func(f *pflag.Flag) {
		title := "Flags"
		if of := f.Annotations[groupOf]; of != nil {
			title = of[0]
		}
		if sets[title] == nil {
			sets[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			sets[title].SortFlags = set.SortFlags
			titles = append(titles, title)
		}
		sets[title].AddFlag(f)
	})
	var text strings.Builder
	for _, title := range titles {
		if usages := sets[title].FlagUsagesWrapped(width); usages != "" {
			fmt.Fprintf(&text, "%s:\n%s\n", title, usages)
		}
	}
	return strings.TrimRight(text.String(), "\n ")
}
