package service

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/userdata"
)

type UserData struct {
	cleanupv1.UnimplementedUserDataServiceServer
	forms *userdata.Manager
	// unavailable says why the Forms database must not be used; nil if none was configured.
	unavailable error
	// stopping is done when streams have to end.
	stopping context.Context
}

// NewUserData returns a service all of whose calls fail if forms is nil. When stopping ends, streams end with
// UNAVAILABLE.
func NewUserData(stopping context.Context, forms *userdata.Manager) *UserData {
	return &UserData{forms: forms, stopping: stopping}
}

// NoUserData returns a service all of whose calls fail, because the Forms database must not be used.
func NoUserData(why error) *UserData { return &UserData{unavailable: why} }

// ready returns nil without a Forms database, because there is nothing to wait for.
func (u *UserData) ready(ctx context.Context) error {
	if u.forms == nil {
		return nil
	}
	return u.forms.Ready(ctx)
}

// errNoForms says that the server was started without a Forms database.
var errNoForms = status.Error(codes.FailedPrecondition,
	"this server knows no AEM Forms database: start it with --forms-database-url")

func (s *UserData) noForms() error {
	if s.unavailable != nil {
		return s.unavailable
	}
	return errNoForms
}

// checkReachable fails if there is no Forms database, or if the service's own database belongs to another instance
// by now.
func (s *UserData) checkReachable(ctx context.Context) error {
	if s.forms == nil {
		return s.noForms()
	}
	return s.forms.Own(ctx)
}

func (s *UserData) FindUserData(
	ctx context.Context, in *cleanupv1.FindUserDataRequest,
) (*cleanupv1.FindUserDataResponse, error) {
	if err := s.checkReachable(ctx); err != nil {
		return nil, err
	}
	query, wrong := parseQuery(in.GetUserId(), in.GetVariables(), nil)
	if wrong != nil {
		return nil, wrong
	}
	if err := audit.Note(ctx, nil, audit.Details{}); err != nil { // nobody searches without an entry in the audit
		return nil, err
	}
	found, err := s.forms.Find(ctx, query)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.FindUserDataResponse{
		PrincipalIds:  found.Principals,
		OrphanTaskIds: idTexts(found.OrphanTasks),
		NotSearched:   found.NotSearched,
		BlindSpots:    s.forms.BlindSpots(),
	}
	for _, instance := range found.Instances {
		message := &cleanupv1.ProcessInstance{
			Id:                    fmt.Sprint(instance.ID),
			LongLivedInvocationId: instance.Invocation,
			Status:                instance.Status,
		}
		for _, r := range instance.Reasons {
			message.Reasons = append(message.Reasons, reasonMessage(r))
		}
		out.ProcessInstances = append(out.ProcessInstances, message)
	}
	return out, nil
}

func reasonMessage(r userdata.Reason) *cleanupv1.Reason {
	out := &cleanupv1.Reason{Kind: cleanupv1.Reason_Kind(cleanupv1.Reason_Kind_value["KIND_"+string(r.Kind)])}
	if r.Kind == userdata.InVariable {
		out.Variable = &cleanupv1.WorkflowVariable{
			Application: r.Variable.Application,
			Workflow:    r.Variable.Workflow,
			Variable:    r.Variable.Name,
		}
		out.Match = cleanupv1.Match(cleanupv1.Match_value["MATCH_"+string(r.Match)])
	}
	return out
}

// parseQuery fails with failure.Violations.
func parseQuery(user string, variables []*cleanupv1.WorkflowVariable, principals []string) (userdata.Query, error) {
	q := userdata.Query{UserID: user, PrincipalIDs: principals}
	var wrong failure.Violations
	check := func(field, value string, required bool) {
		switch {
		case required && value == "":
			wrong.Add(field, "is required")
		case strings.ContainsRune(value, 0):
			wrong.Add(field, "has a NUL character, which PostgreSQL and MySQL cannot store")
		}
	}
	check("user_id", user, true)
	for i, v := range variables {
		check(fmt.Sprintf("variables[%d].application", i), v.GetApplication(), true)
		check(fmt.Sprintf("variables[%d].workflow", i), v.GetWorkflow(), true)
		check(fmt.Sprintf("variables[%d].variable", i), v.GetVariable(), false)
		q.Variables = append(q.Variables,
			userdata.Variable{Application: v.GetApplication(), Workflow: v.GetWorkflow(), Name: v.GetVariable()})
	}
	if wrong != nil {
		return q, wrong
	}
	return q, nil
}
