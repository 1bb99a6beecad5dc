package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/flags"
)

type entry struct {
	policy *cleanupv1.Policy
	file   string
	lines  map[string]int // by the path of a field, such as filters[0].values; "" is the policy itself
}

// where returns the file and the line of a field, or of the innermost part of its path that the file has.
func (e entry) where(path string) string {
	for e.lines[path] == 0 && path != "" {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return fmt.Sprintf("%s:%d", e.file, e.lines[path])
}

// readFile reads a file, or the standard input if the name is "-". The error joins all mistakes.
func readFile(cmd *cobra.Command, name string) ([]entry, error) {
	if name == "-" {
		return parse("standard input", cmd.InOrStdin())
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, flags.Errorf("%w", err)
	}
	defer func() { _ = f.Close() }()
	return parse(name, f)
}

// parse reads YAML documents. Each one is a policy, a list of policies, or a list under `policies`.
func parse(file string, r io.Reader) ([]entry, error) {
	p := parser{file: file, lines: map[string]string{}}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, flags.Errorf("%s: %w", file, err)
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, flags.Errorf("%s:%d: %s", file, wrongLine(text), yamlPrefix.ReplaceAllString(err.Error(), ""))
		}
		p.document(document.Content[0])
	}
	if len(p.wrong) == 0 && !p.any {
		p.wrong = append(p.wrong, flags.Errorf("%s has no policy", file))
	}
	return p.found, errors.Join(p.wrong...)
}

// yamlPrefix is where an error of the package yaml begins. Its line is that of the mapping or list around the error.
var yamlPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// wrongLine returns the line after which no text is YAML any more.
func wrongLine(text []byte) int {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for n := len(lines) - 1; n > 0; n-- {
		documents := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n], nil)))
		err := error(nil)
		for err == nil {
			err = documents.Decode(&yaml.Node{})
		}
		if errors.Is(err, io.EOF) {
			return n + 1
		}
	}
	return 1
}

type parser struct {
	file  string
	found []entry
	any   bool              // whether there is a policy, or an empty list of them
	lines map[string]string // where each name was found for the first time
	name  string            // the name of the current policy; empty if it has none
	at    map[string]int    // entry.lines of the current policy
	wrong []error
}

func (p *parser) errorf(n *yaml.Node, format string, args ...any) {
	where := p.where(n)
	if p.name != "" {
		where += ": policy " + p.name
	}
	p.wrong = append(p.wrong, flags.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
}

func (p *parser) where(n *yaml.Node) string { return fmt.Sprintf("%s:%d", p.file, n.Line) }

func (p *parser) document(n *yaml.Node) {
	n, p.name = target(n), ""
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Value == "policies" {
		if len(n.Content) > 2 {
			p.errorf(n.Content[2], "%s: nothing else can be in a document with policies", n.Content[2].Value)
		}
		if n = target(n.Content[1]); n.Kind != yaml.SequenceNode {
			p.errorf(n, "policies must be a list")
			return
		}
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		p.any = true
		for _, one := range n.Content {
			p.policy(target(one))
		}
	case !isNull(n):
		p.policy(n)
	}
}

func (p *parser) policy(n *yaml.Node) {
	m := &cleanupv1.Policy{}
	p.any, p.name, p.at = true, nameIn(n), map[string]int{"": n.Line}
	p.message(n, "", m.ProtoReflect())
	switch first, again := p.lines[m.GetName()]; {
	case n.Kind != yaml.MappingNode:
	case m.GetName() == "":
		p.errorf(n, "name is missing")
	case again:
		p.errorf(n, "the name is used twice, first in %s", first)
	}
	p.lines[m.GetName()] = p.where(n)
	p.found = append(p.found, entry{m, p.file, p.at})
}

// nameIn returns "" if the node has no name.
func nameIn(n *yaml.Node) string {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// message reads the fields of m. path is empty for a policy itself.
func (p *parser) message(n *yaml.Node, path string, m protoreflect.Message) {
	if n.Kind != yaml.MappingNode {
		p.errorf(n, "%s must have fields, as NAME: VALUE", pathOr(path, "a policy"))
		return
	}
	given := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		f := fieldOf(m.Descriptor().Fields(), key.Value)
		switch {
		case f == nil:
			p.errorf(key, "%s is not a field%s", join(path, key.Value), flags.Similar(key.Value, names(m)))
		case given[f.JSONName()]:
			p.errorf(key, "%s is given twice", join(path, f.JSONName()))
		case path == "" && isServers(f):
			p.errorf(key, "%s is set by the server: leave it out", f.JSONName())
		case f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil:
			p.errorf(key, "%s cannot be given beside %s", join(path, f.JSONName()),
				m.WhichOneof(f.ContainingOneof()).JSONName())
		default:
			given[f.JSONName()] = true
			p.at[join(path, f.JSONName())] = key.Line
			p.field(value, join(path, f.JSONName()), m, f)
		}
	}
}

func (p *parser) field(n *yaml.Node, path string, m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch {
	case isNull(n) && f.HasOptionalKeyword(): // the value is NULL
	case isNull(n):
		p.errorf(n, "%s has no value%s", path, insteadOfNull(f))
	case f.IsList() && n.Kind != yaml.SequenceNode:
		p.errorf(n, "%s must be a list", path)
	case f.IsList():
		list := m.Mutable(f).List()
		for i, one := range n.Content {
			place := fmt.Sprintf("%s[%d]", path, i)
			p.at[place] = one.Line
			p.element(target(one), place, list, f)
		}
	case f.Message() != nil && f.Message().FullName() != duration:
		p.message(n, path, m.Mutable(f).Message())
	default:
		if value, ok := p.scalar(n, path, f); ok {
			m.Set(f, value)
		}
	}
}

func (p *parser) element(n *yaml.Node, path string, list protoreflect.List, f protoreflect.FieldDescriptor) {
	if f.Message() != nil {
		p.message(n, path, list.AppendMutable().Message())
		return
	}
	if isNull(n) {
		p.errorf(n, "%s has no value%s", path, insteadOfNull(f))
		return
	}
	if value, ok := p.scalar(n, path, f); ok {
		list.Append(value)
	}
}

// insteadOfNull says what to write where no comparison is true, and that a text needs quotes.
func insteadOfNull(f protoreflect.FieldDescriptor) string {
	if f.FullName() != filterValues {
		return ""
	}
	return `: for rows without a value in the column write op: IS_NULL (for the others IS_NOT_NULL) and leave ` +
		`values out; for the text null write "null"`
}

var filterValues = (&cleanupv1.Filter{}).ProtoReflect().Descriptor().Fields().ByName("values").FullName()

var duration = (&durationpb.Duration{}).ProtoReflect().Descriptor().FullName()

// scalar accepts numbers, dates and booleans for a text field, as they are written.
func (p *parser) scalar(n *yaml.Node, path string, f protoreflect.FieldDescriptor) (value protoreflect.Value, ok bool) {
	tag := n.ShortTag()
	switch f.Kind() {
	case protoreflect.StringKind:
		if n.Kind == yaml.ScalarNode && texts[tag] {
			return protoreflect.ValueOfString(n.Value), true
		}
		p.errorf(n, "%s must be a text", path)
	case protoreflect.BoolKind:
		if tag == "!!bool" {
			return protoreflect.ValueOfBool(strings.EqualFold(n.Value, "true")), true
		}
		p.errorf(n, "%s must be true or false", path)
	case protoreflect.EnumKind:
		prefix := enumPrefix(f.Enum())
		name := prefix + strings.TrimPrefix(strings.ToUpper(n.Value), prefix)
		if known := f.Enum().Values().ByName(protoreflect.Name(name)); known != nil && known.Number() != 0 {
			return protoreflect.ValueOfEnum(known.Number()), true
		}
		p.errorf(n, "%s must be one of %s, not %q", path, strings.Join(enumNames(f.Enum()), ", "), n.Value)
	case protoreflect.MessageKind:
		d, err := flags.ParseDuration(n.Value)
		if err == nil {
			return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), true
		}
		p.errorf(n, "%s %v", path, err)
	default:
		// A number beyond 32 bits becomes the nearest one, which the server refuses with the range of the field.
		number, err := strconv.ParseInt(n.Value, 10, 32)
		if (err == nil || errors.Is(err, strconv.ErrRange)) && tag == "!!int" {
			return protoreflect.ValueOfInt32(int32(number)), true
		}
		p.errorf(n, "%s must be a whole number", path)
	}
	return value, false
}

// texts are the kinds of values that are read as texts where a text is expected.
var texts = map[string]bool{"!!str": true, "!!int": true, "!!float": true, "!!bool": true, "!!timestamp": true}

// target resolves n, which may be an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func pathOr(path, other string) string {
	if path == "" {
		return other
	}
	return path
}

// isServers reports whether the server sets the field. Files leave such fields out.
func isServers(f protoreflect.FieldDescriptor) bool {
	return f.Name() == "etag" || f.Name() == "warnings"
}

// fieldOf takes the name in JSON or in the proto file, and returns nil if it is unknown.
func fieldOf(fields protoreflect.FieldDescriptors, name string) protoreflect.FieldDescriptor {
	if f := fields.ByJSONName(name); f != nil {
		return f
	}
	return fields.ByName(protoreflect.Name(name))
}

func names(m protoreflect.Message) (list []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if !isServers(fields.Get(i)) {
			list = append(list, fields.Get(i).JSONName())
		}
	}
	return list
}

// enumPrefix returns the prefix that all names of an enum share. Files leave it out.
func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().ByNumber(0).Name()), "UNSPECIFIED")
}

func enumNames(e protoreflect.EnumDescriptor) (list []string) {
	for i := 1; i < e.Values().Len(); i++ {
		list = append(list, strings.TrimPrefix(string(e.Values().Get(i).Name()), enumPrefix(e)))
	}
	return list
}

// isRefusal reports whether the server refuses a policy. Any other error would be the same for the next policy.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.FailedPrecondition
}

// explain returns one error for each field that the server refuses. It names the policy and the field's place in the
// file.
func (e entry) explain(err error) error {
	s := status.Convert(err)
	at := func(path string) string { return fmt.Sprintf("%s: policy %s: ", e.where(path), e.policy.GetName()) }
	switch s.Code() {
	case codes.InvalidArgument:
	case codes.FailedPrecondition:
		return errors.New(at("") + s.Message())
	default:
		return err
	}
	var wrong []error
	for _, detail := range s.Details() {
		bad, _ := detail.(*errdetails.BadRequest)
		for _, v := range bad.GetFieldViolations() {
			path := FieldPath(v.GetField())
			text := at(path)
			if path != "" {
				text += path + ": "
			}
			wrong = append(wrong, flags.Errorf("%s%s", text, v.GetDescription()))
		}
	}
	if wrong == nil {
		wrong = append(wrong, flags.Errorf("%s%s", at(""), s.Message()))
	}
	return errors.Join(wrong...)
}

// FieldPath returns the path as it is written in a file, such as `olderThan.days`; "" for the policy itself.
func FieldPath(field string) string {
	var names []string
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(field, "policy"), "."), ".") {
		names = append(names, format.FieldName(part))
	}
	return strings.Join(names, ".")
}
