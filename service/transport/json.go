package transport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// strictJSON treats unknown fields, and anything after the value, as errors.
type strictJSON struct{ *runtime.JSONPb }

func (j strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		body, err := io.ReadAll(r)
		switch {
		case err != nil:
			return err
		case len(strings.TrimSpace(string(body))) == 0: // such as an empty variable of a script
			return errors.New("the body is missing: send a JSON object, {} for one without fields")
		}
		var value json.RawMessage
		var wrong *json.SyntaxError
		if err := json.Unmarshal(body, &value); errors.As(err, &wrong) {
			return fmt.Errorf("the body is not one JSON value: after %d bytes: %w", wrong.Offset, wrong)
		}
		if objects(body) > maxMessages {
			return fmt.Errorf("the body has more than %d objects in it", maxMessages)
		}
		err = j.Unmarshal(body, v)
		if _, options := v.(**cleanupv1.Options); options && err != nil {
			if clamped, ok := clamp(body); ok {
				return j.Unmarshal(clamped, v)
			}
		}
		if err != nil {
			return explainJSON(body, v, err)
		}
		return nil
	})
}

// objects returns how many objects are in a JSON text.
func objects(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case b == '{' && !quoted:
			n++
		}
	}
	return n
}

// clamp limits the integers of a JSON object to 32 bits, so that numbers that are far too large are refused field
// by field like other values that are too large. ok is false if there was nothing to clamp.
func clamp(object []byte) (clamped []byte, ok bool) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return nil, false
	}
	for name, value := range fields {
		text, isText := value.(string) // protobuf's JSON also accepts numbers as strings
		if number, isNumber := value.(json.Number); isNumber {
			text = number.String()
		} else if !isText {
			continue
		}
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Trunc(number) != number {
			continue
		}
		if most := math.Min(math.Max(number, math.MinInt32), math.MaxInt32); most != number {
			fields[name], ok = int32(most), true
		}
	}
	if ok {
		clamped, _ = json.Marshal(fields) // never fails: fields came from JSON
	}
	return clamped, ok
}

// ndjson is the type of a stream of JSON objects, one per line.
const ndjson = "application/x-ndjson"

type ndjsonMarshaler struct{ strictJSON }

func (ndjsonMarshaler) StreamContentType(any) string { return ndjson }

// located matches the position and the problem in an error of protojson.
var located = regexp.MustCompile(`\(line (\d+):(\d+)\): (.*)$`)

var unknownField = regexp.MustCompile(`^unknown field ".*"$`)

// separator separates the part of the request, the path and the problem in the text of an error. All three are in the
// text because the gateway passes on nothing else of a decoder's error.
const separator = "\x1f"

func wrongField(part, path, problem string) error {
	clean := strings.NewReplacer(separator, "?").Replace
	return errors.New(part + separator + clean(path) + separator + clean(problem))
}

// explainJSON adds to an error of protojson the path of the value in the body, and the similar name of an unknown
// field. into is a message, or a pointer to one. Other errors are unchanged.
func explainJSON(body []byte, into any, err error) error {
	found := located.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\u00a0", " "))
	if found == nil {
		return err
	}
	line, _ := strconv.Atoi(found[1])
	column, _ := strconv.Atoi(found[2])
	path, problem := pathAt(body, line, column), found[3]
	m, is := into.(proto.Message)
	if !is {
		m, is = reflect.ValueOf(into).Elem().Interface().(proto.Message)
	}
	if !is {
		return wrongField("body", path, problem)
	}
	d := m.ProtoReflect().Descriptor()
	switch {
	case unknownField.MatchString(problem):
		problem = "there is no such field" + similarField(d, path)
	case strings.HasPrefix(problem, "duplicate field "):
		problem = "is given twice"
	default:
		problem = cmp.Or(expected(d, path, strings.HasSuffix(problem, " is already set")), problem)
	}
	return wrongField("body", path, problem)
}

// violation returns a status with the field violation of an error of wrongField, and others with the fields named as
// the caller sent them.
func violation(r *http.Request, s *status.Status) *status.Status {
	parts := strings.Split(s.Message(), separator)
	if len(parts) != 3 {
		return asSent(r, s)
	}
	path, problem := parts[1], parts[2]
	text := problem
	if path != "" {
		text = path + ": " + problem
	}
	v := status.New(codes.InvalidArgument, "the "+parts[0]+" is not valid: "+text)
	detailed, err := v.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: path, Description: problem}},
	})
	if err != nil {
		return v
	}
	return detailed
}

// asSent names the fields of violations without the field of the request that is the body, and in JSON's spelling
// unless the query has the other one.
func asSent(r *http.Request, s *status.Status) *status.Status {
	if len(s.Details()) != 1 {
		return s
	}
	bad, ok := s.Details()[0].(*errdetails.BadRequest)
	if !ok {
		return s
	}
	in, query := operationsOf(r.URL)[r.Method].in, r.URL.Query()
	text := &strings.Builder{}
	for i, v := range bad.GetFieldViolations() {
		switch {
		case query.Has(v.GetField()):
		case v.GetField() == in:
			v.Field = ""
		default:
			v.Field = jsonPath(strings.TrimPrefix(v.GetField(), in+"."))
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(cmp.Or(v.GetField(), "body") + ": " + v.GetDescription())
	}
	sent, err := status.New(s.Code(), text.String()).WithDetails(bad)
	if err != nil {
		return s
	}
	return sent
}

var afterUnderscore = regexp.MustCompile(`_[a-z]`)

func jsonPath(path string) string {
	return afterUnderscore.ReplaceAllStringFunc(path, func(part string) string { return strings.ToUpper(part[1:]) })
}

// pathAt returns the path of the value or the key at a position of a JSON text, such as policy.filters[1].op.
func pathAt(text []byte, line, column int) string {
	at := int64(0) // the offset of the position: columns count characters, and lines end with \n
	for rest := text; line > 1; line-- {
		end := bytes.IndexByte(rest, '\n') + 1
		at, rest = at+int64(end), rest[end:]
	}
	for _, r := range string(text[at:]) {
		if column--; column < 1 {
			break
		}
		at += int64(len(string(r)))
	}
	type level struct {
		array bool
		index int
		key   string
		named bool // the key of the next value is known
	}
	var levels []level
	path := func() string {
		var b strings.Builder
		for i, l := range levels {
			switch {
			case l.array:
				fmt.Fprintf(&b, "[%d]", l.index)
			case l.key != "" && i > 0 && b.Len() > 0:
				b.WriteString("." + l.key)
			default:
				b.WriteString(l.key)
			}
		}
		return b.String()
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return path()
		}
		var top *level
		if len(levels) > 0 {
			top = &levels[len(levels)-1]
		}
		closes := token == json.Delim('}') || token == json.Delim(']')
		isKey := top != nil && !top.array && !top.named && !closes
		if isKey {
			top.key, top.named = token.(string), true
		}
		if d.InputOffset() > at {
			return path()
		}
		switch {
		case isKey:
		case closes:
			levels = levels[:len(levels)-1]
		case token == json.Delim('{'), token == json.Delim('['):
			levels = append(levels, level{array: token == json.Delim('[')})
			continue
		}
		if !isKey && len(levels) > 0 { // a value ends
			top = &levels[len(levels)-1]
			top.index, top.named = top.index+1, false
		}
	}
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// find returns the message around the last field of a path, and that field; nil if there is none.
func find(m protoreflect.MessageDescriptor, path string) (
	around protoreflect.MessageDescriptor, f protoreflect.FieldDescriptor, name string,
) {
	for part := range strings.SplitSeq(indexes.ReplaceAllString(path, ""), ".") {
		if f != nil {
			m = f.Message()
		}
		if m == nil || (f != nil && f.IsMap()) {
			return nil, nil, part
		}
		if f = m.Fields().ByJSONName(part); f == nil {
			f = m.Fields().ByName(protoreflect.Name(part))
		}
		if around, name = m, part; f == nil {
			m = nil
		}
	}
	return around, f, name
}

// similarField suggests a field for one that does not exist.
func similarField(m protoreflect.MessageDescriptor, path string) string {
	around, _, unknown := find(m, path)
	if around == nil {
		return ""
	}
	return flags.Similar(unknown, namesOf(around.Fields()))
}

func namesOf(fields interface {
	Len() int
	Get(i int) protoreflect.FieldDescriptor
},
) (names []string) {
	for i := range fields.Len() {
		names = append(names, fields.Get(i).JSONName())
	}
	return names
}

// expected says what a field can be, or if another field of its oneof is given as well, that it cannot be beside that.
// It returns "" for a field that it does not know.
func expected(m protoreflect.MessageDescriptor, path string, beside bool) string {
	if path == "" {
		return "must be an object"
	}
	_, f, _ := find(m, path)
	switch {
	case f == nil || f.IsMap():
		return ""
	case beside && f.ContainingOneof() != nil:
		return "only one may be given of " + strings.Join(namesOf(f.ContainingOneof().Fields()), ", ")
	case f.IsList() && !strings.HasSuffix(path, "]"):
		if f.Message() != nil {
			return "must be a list of objects with " + strings.Join(namesOf(f.Message().Fields()), ", ")
		}
		return "must be a list"
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		return "must be a text"
	case protoreflect.BoolKind:
		return "must be true or false"
	case protoreflect.EnumKind:
		var names []string
		for i := 1; i < f.Enum().Values().Len(); i++ {
			names = append(names, string(f.Enum().Values().Get(i).Name()))
		}
		return "must be one of " + strings.Join(names, ", ")
	case protoreflect.Int32Kind:
		return fmt.Sprintf("must be a whole number from %d to %d", math.MinInt32, math.MaxInt32)
	case protoreflect.Int64Kind:
		return "must be a whole number"
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Duration":
			return `must be a number of seconds with an s, such as "3600s"`
		case "google.protobuf.Timestamp":
			return "must be a time, such as 2026-02-28T12:00:00Z"
		}
		if f.Message().Fields().Len() == 0 {
			return "must be {}"
		}
		return "must be an object with " + strings.Join(namesOf(f.Message().Fields()), ", ")
	}
	return ""
}
