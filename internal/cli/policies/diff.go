package policies

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

type change struct {
	stored *cleanupv1.Policy // nil if the policy is created
	wanted *cleanupv1.Policy // nil if it is deleted; as the server would store it
}

func (c change) name() string {
	if c.wanted == nil {
		return c.stored.GetName()
	}
	return c.wanted.GetName()
}

func (c change) differs() bool {
	return c.stored == nil || c.wanted == nil || !proto.Equal(withoutServers(c.stored), withoutServers(c.wanted))
}

func withoutServers(p *cleanupv1.Policy) *cleanupv1.Policy {
	p = proto.CloneOf(p)
	p.Etag, p.Warnings = "", nil
	return p
}

// print prints each line of the old policy that the new one lacks, and vice versa.
func (c change) print(w io.Writer) error {
	title := "changes"
	switch {
	case c.stored == nil:
		title = "is new"
	case c.wanted == nil:
		title = "is deleted"
	}
	fmt.Fprintf(w, "%s %s\n", c.name(), title)
	before, err := lines(c.stored)
	if err != nil {
		return err
	}
	after, err := lines(c.wanted)
	if err != nil {
		return err
	}
	for _, line := range merged(before, after) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	return nil
}

// merged returns the lines that only one of the two lists has, with a sign. A line that replaces a line of the same
// field comes right after it.
func merged(before, after []string) (out []string) {
	field := func(line string) string { return line[:strings.Index(line, ": ")] }
	shown := map[string]bool{}
	for _, old := range before {
		if slices.Contains(after, old) {
			continue
		}
		out = append(out, "- "+old)
		for _, line := range after {
			if field(line) == field(old) {
				out, shown[line] = append(out, "+ "+line), true
			}
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) && !shown[line] {
			out = append(out, "+ "+line)
		}
	}
	return out
}

// lines returns one line per value, such as `olderThan.days: 30`, except for the name; none for nil.
func lines(p *cleanupv1.Policy) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	p = proto.CloneOf(p)
	p.Name = ""
	return appendLines(nil, "", messageNode(p.ProtoReflect()))
}

// appendLines adds a line for each element of a list.
func appendLines(list []string, path string, n *yaml.Node) ([]string, error) {
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content) && err == nil; i += 2 {
			list, err = appendLines(list, join(path, n.Content[i].Value), n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i := 0; i < len(n.Content) && err == nil; i++ {
			list, err = appendLine(list, fmt.Sprintf("%s[%d]", path, i), n.Content[i])
		}
	default:
		list, err = appendLine(list, path, n)
	}
	return list, err
}

func appendLine(list []string, path string, n *yaml.Node) ([]string, error) {
	n.Style |= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "\n") {
		n.Style = yaml.DoubleQuotedStyle
	}
	text, err := encodeNode(n)
	return append(list, path+": "+strings.TrimSpace(text)), err
}
