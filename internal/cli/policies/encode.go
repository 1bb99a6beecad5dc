package policies

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

func encode(policies []*cleanupv1.Policy) (string, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, p := range policies {
		list.Content = append(list.Content, messageNode(p.ProtoReflect()))
	}
	if len(policies) == 0 {
		list.Style = yaml.FlowStyle
	}
	file := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{textNode("policies"), list}}
	return encodeNode(file)
}

// encodeNode escapes characters on which a terminal could act. Only quoted texts contain such characters.
func encodeNode(n *yaml.Node) (string, error) {
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range text.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			fmt.Fprintf(&out, `\U%08X`, r)
		}
	}
	return out.String(), nil
}

// messageNode returns the fields in their order, without those that the server sets.
func messageNode(m protoreflect.Message) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		// enabled is written out, and so is a value that is NULL
		shown := m.Has(f) || f.Name() == "enabled" || assignsNull(m, f)
		if shown && !isServers(f) {
			n.Content = append(n.Content, textNode(f.JSONName()), fieldNode(m, f))
		}
	}
	return n
}

// assignsNull reports whether a column is assigned NULL by a value that is absent.
func assignsNull(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	a, is := m.Interface().(*cleanupv1.Assign)
	return is && f.Name() == "value" && a.GetValueFromKey() == ""
}

func fieldNode(m protoreflect.Message, f protoreflect.FieldDescriptor) *yaml.Node {
	switch value := m.Get(f); {
	case f.HasOptionalKeyword() && !m.Has(f):
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case f.IsList():
		list := &yaml.Node{Kind: yaml.SequenceNode}
		if f.Message() == nil {
			list.Style = yaml.FlowStyle
		}
		for i := range value.List().Len() {
			list.Content = append(list.Content, valueNode(value.List().Get(i), f))
		}
		return list
	default:
		return valueNode(value, f)
	}
}

func valueNode(value protoreflect.Value, f protoreflect.FieldDescriptor) *yaml.Node {
	switch f.Kind() {
	case protoreflect.MessageKind:
		if d, is := value.Message().Interface().(*durationpb.Duration); is {
			return textNode(d.AsDuration().String())
		}
		return messageNode(value.Message())
	case protoreflect.EnumKind:
		name := fmt.Sprint(value.Enum())
		if known := f.Enum().Values().ByNumber(value.Enum()); known != nil { // otherwise it is of a newer server
			name = strings.TrimPrefix(string(known.Name()), enumPrefix(f.Enum()))
		}
		return textNode(name)
	case protoreflect.StringKind:
		return textNode(value.String())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
}

// textNode quotes the text if it would otherwise be read as something else.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	isMerge := text == "<<" // the key that merges maps, even in quotes
	if isMerge || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
