package transport

import (
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A body that is not JSON, is cut off, or has something after its value is refused. The error names the place.
func TestBodiesWithoutOneValue(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"table": "x"`:    "after 13 bytes: unexpected end of JSON input",
		`{"table": x}`:     "after 11 bytes: invalid character 'x' looking for beginning of value",
		`{"table": "x"} {`: "after 16 bytes: invalid character '{' after top-level value",
	} {
		err := strictJSON{&runtime.JSONPb{}}.NewDecoder(strings.NewReader(body)).Decode(&cleanupv1.Policy{})
		if err == nil || err.Error() != "the body is not one JSON value: "+want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// An error in a body names the path of the value, and the similar name of an unknown field.
func TestErrorsInBodies(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]string{
		`{"tabel": "x"}`: {"tabel", "there is no such field (did you mean table?)"},
		`{"older_than": {"column": "c", "dayz": 3}}`: {"older_than.dayz", "there is no such field (did you mean days?)"},
		"{\n  \"table\": \"ü\",\n  \"filters\": [{}, {\"colum\": 1}]\n}": {
			"filters[1].colum", "there is no such field (did you mean column?)",
		},
		`{"partitions": "DETACH"}`: {
			"partitions", "must be one of PARTITIONS_DROP, PARTITIONS_DETACH, PARTITIONS_DELETE",
		},
		`{"olderThan": {"days": "x"}}`:           {"olderThan.days", "must be a whole number from -2147483648 to 2147483647"},
		`{"olderThan": {"days": 1, "hours": 2}}`: {"olderThan.hours", "only one may be given of days, hours"},
		`{"olderThan": "90d"}`:                   {"olderThan", "must be an object with column, days, hours"},
		`{"filters": "x"}`:                       {"filters", "must be a list of objects with column, op, values"},
		`{"filters": [5]}`:                       {"filters[0]", "must be an object with column, op, values"},
		`{"filters": [{"values": "x"}]}`:         {"filters[0].values", "must be a list"},
		`{"filters": [{"values": [5]}]}`:         {"filters[0].values[0]", "must be a text"},
		`{"undo": "3d"}`:                         {"undo", `must be a number of seconds with an s, such as "3600s"`},
		`{"undo": 3}`:                            {"undo", `must be a number of seconds with an s, such as "3600s"`},
		`{"enabled": "yes"}`:                     {"enabled", "must be true or false"},
		`{"limit": 5000000000}`:                  {"limit", "must be a whole number from -2147483648 to 2147483647"},
		`{"äöü": 1, "filters": []}`:              {"äöü", "there is no such field"},
		`{"enabled": true, "enabled": true}`:     {"enabled", "is given twice"},
	} {
		p := &cleanupv1.Policy{}
		for _, into := range []any{p, &p} {
			explained := explainJSON([]byte(body), into, protojson.Unmarshal([]byte(body), p))
			s := violation(nil, status.New(codes.InvalidArgument, explained.Error()))
			var got [2]string
			for _, d := range s.Details() {
				v := d.(*errdetails.BadRequest).GetFieldViolations()[0]
				got = [2]string{v.GetField(), v.GetDescription()}
			}
			if got != want || s.Message() != "the body is not valid: "+want[0]+": "+want[1] {
				t.Errorf("%s: %q, %s; want %q", body, got, s.Message(), want)
			}
		}
	}
	if s := status.New(codes.NotFound, "x"); violation(nil, s) != s {
		t.Error("another status was changed")
	}
}
