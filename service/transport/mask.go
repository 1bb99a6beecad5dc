package transport

import (
	"bytes"
	"regexp"
	"strings"

	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/access"
	policies "github.com/cleanupd/cleanupd/tasks/policy"
)

// masked replaces a value that the caller must not see.
const masked = "…"

// isMasked reports whether the values of policies are hidden from the caller, because they may be personal data such
// as addresses.
func (c *call) isMasked() bool { return c.caller.Role < access.Operator }

// maskedMessage masks a copy, because other callers may get the same message. It does not decode encoded events that
// name no policy, because a thousand viewers may watch.
func maskedMessage(m any) (any, error) {
	switch m := m.(type) {
	case Encoded:
		if !bytes.Contains(m, []byte(policies.Prefix)) {
			break
		}
		var event cleanupv1.WatchRunResponse // RunCleanupResponse is the same on the wire
		if err := protobuf.Unmarshal(m, &event); err != nil {
			return nil, err
		}
		mask(&event)
		return &event, nil
	case protobuf.Message:
		copied := protobuf.Clone(m)
		mask(copied)
		return copied, nil
	}
	return m, nil
}

func maskStatus(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || !strings.Contains(s.Message(), policies.Prefix) {
		return err
	}
	p := s.Proto()
	p.Message = maskText(p.GetMessage())
	return status.FromProto(p).Err()
}

func mask(m protobuf.Message) {
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if part, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok {
			maskPart(part.Interface())
		}
		return nil
	})
}

func maskPart(m protobuf.Message) {
	switch m := m.(type) {
	case *cleanupv1.Policy:
		maskPolicy(m)
	case *cleanupv1.Run:
		if strings.Contains(m.GetError(), policies.Prefix) {
			m.Error = maskText(m.GetError())
		}
	case *cleanupv1.TaskResult:
		if isPolicy(m.GetTask()) {
			m.Error, m.Detail = maskText(m.GetError()), maskText(m.GetDetail())
			for _, p := range m.GetPreview() {
				p.Rule = maskText(p.GetRule())
			}
		}
	case *cleanupv1.ExplainTaskResponse:
		if isPolicy(m.GetTask()) {
			for _, s := range m.GetStatements() {
				s.Rule = maskText(s.GetRule())
				maskAll(s.GetParameters())
			}
		}
	case *cleanupv1.ExplainedStep:
		if isPolicy(m.GetTask()) {
			m.Rule, m.Why = maskText(m.GetRule()), maskText(m.GetWhy())
			for _, p := range m.GetParts() {
				p.Text = maskText(p.GetText())
				for i, v := range p.GetValues() { // has the form COLUMN = VALUE, and VALUE may be compared by a filter
					if column, _, ok := strings.Cut(v, " = "); ok {
						p.Values[i] = column + " = " + masked
					}
				}
			}
		}
	case *cleanupv1.Message:
		if m.GetCode() == message.PolicyUnusable.Code {
			m.Text = maskText(m.GetText())
			maskParams(m.GetParams())
		}
	case *cleanupv1.LogEntry:
		if m.GetCode() == message.PolicyUnusable.Code {
			m.Message = maskText(m.GetMessage())
			maskParams(m.GetParams())
		}
	}
}

func isPolicy(task string) bool { return strings.HasPrefix(task, policies.Prefix) }

// maskPolicy also removes the etag, with which a viewer could check whether guessed values are right.
func maskPolicy(p *cleanupv1.Policy) {
	p.Etag = ""
	for _, f := range p.GetFilters() {
		maskAll(f.GetValues())
		p.MaskedValues += int32(len(f.GetValues()))
	}
	for _, a := range p.GetAssign() {
		if a.Value != nil || a.GetValueFromKey() != "" {
			a.Value, a.ValueFromKey = protobuf.String(masked), ""
			p.MaskedValues++
		}
	}
}

func maskParams(params map[string]string) {
	for name, value := range params {
		params[name] = maskText(value)
	}
}

func maskAll(values []string) {
	for i := range values {
		values[i] = masked
	}
}

// quoted matches the quoted name of a table with its schema, or else any quoted text as %q writes values.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(?:\."(?:[^"\\]|\\.)*")?`)

// maskText masks quoted texts, except names of tables with a schema.
func maskText(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(found string) string {
		if strings.Contains(found, `"."`) && !strings.Contains(found, `\`) {
			return found
		}
		return masked
	})
}
