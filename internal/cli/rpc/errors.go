package rpc

import (
	"cmp"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

// Explain adds what the user can do: watch the run that is already active, or check the address of a server that
// cannot be reached.
func (server *Server) Explain(err error) error { return ofJoined(err, server.explain) }

// ofJoined applies explain to an error, or to each of those that it joins: gRPC would make one text of them.
func ofJoined(err error, explain func(error) error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // one that wraps it has its own text
	if !ok {
		return explain(err)
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, ofJoined(one, explain))
	}
	return errors.Join(all...)
}

func (server *Server) explain(err error) error {
	s, ok := status.FromError(err)
	for _, detail := range s.Details() {
		if info, _ := detail.(*errdetails.ErrorInfo); info.GetReason() == store.RunActive {
			return status.Errorf(s.Code(), "%s; watch it with %s", s.Message(),
				server.Command("runs watch", info.GetMetadata()["run_id"]))
		}
	}
	if !ok || s.Code() != codes.Unavailable ||
		(!strings.HasPrefix(s.Message(), "connection error: ") &&
			!strings.HasPrefix(s.Message(), "name resolver error: ")) {
		return err
	}
	for _, h := range hints {
		if strings.Contains(s.Message(), h.part) {
			return status.Errorf(codes.Unavailable, "cannot reach %s: %s (%s)", server.Address, h.hint, s.Message())
		}
	}
	hint := "--database-url works without a server"
	if os.Getenv("CLEANUPD_DATABASE_URL") != "" { // so that nobody changes a database that only the variable names
		hint += "; this command does not read CLEANUPD_DATABASE_URL"
	}
	return status.Errorf(codes.Unavailable, "cannot reach %s: %s (%s)", server.Address, s.Message(), hint)
}

// hints explain connection errors that contain part.
var hints = []struct{ part, hint string }{
	{
		"looked like an HTTP/1.1 header",
		"this is an address for HTTP; give the one for gRPC, --grpc-listen of the server",
	},
	{
		"does not look like a TLS handshake",
		"the server speaks plain text there; leave out --tls and --tls-ca, or is it the address for HTTP?",
	},
	{"server preface", "check that it is the gRPC address, and whether the server uses TLS: --tls, --tls-ca"},
}

// ExplainConflict replaces the error of a stale etag: the settings changed after the command had read them, and the
// user can run the command again.
func ExplainConflict(err error) error {
	if status.Code(err) != codes.Aborted {
		return err
	}
	return status.Error(codes.Aborted,
		"nothing was changed: somebody else changed the same settings meanwhile; run the command again")
}

// PlainError leaves out the gRPC code. An invalid argument becomes a usage error.
func PlainError(err error) error { return ofJoined(err, plainError) }

func plainError(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok || err == nil:
		return err
	case s.Code() == codes.InvalidArgument:
		return flags.Errorf("%s", s.Message())
	}
	return errors.New(s.Message())
}

// nameFields names fields in an error as the user typed them.
func nameFields(cmd *cobra.Command, err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.InvalidArgument {
		return err
	}
	var problems []string
	for _, detail := range s.Details() {
		bad, _ := detail.(*errdetails.BadRequest)
		for _, v := range bad.GetFieldViolations() {
			problems = append(problems, typedName(cmd, v.GetField())+": "+v.GetDescription())
		}
	}
	if problems == nil {
		return err
	}
	return status.Error(s.Code(), strings.Join(problems, "; "))
}

// otherNames are fields with another name on the command line.
var otherNames = map[string]string{"more_crons": "cron", "page_size": "limit", "into_schema": "into"}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// typedName returns a flag, an argument in capitals, or the name of an option or a guard.
func typedName(cmd *cobra.Command, path string) string {
	segments := strings.Split(listIndex.ReplaceAllString(path, ""), ".")
	last := segments[len(segments)-1]
	var names []string
	for _, segment := range segments { // a flag for the whole comes before one with the name of a part
		name := cmp.Or(otherNames[segment], segment)
		for _, suffix := range []string{"", "s", "_id", "_ids"} {
			names = append(names, strings.TrimSuffix(name, suffix))
		}
	}
	for _, name := range names {
		if f := cmd.Flags().Lookup(strings.ReplaceAll(name, "_", "-")); f != nil {
			return "--" + f.Name
		}
	}
	for _, name := range names {
		if argument := strings.ToUpper(name); slices.Contains(strings.Fields(cmd.Use), argument) {
			return argument
		}
	}
	if strings.HasSuffix(last, "_id") {
		return "ID"
	}
	return format.FieldName(last)
}
