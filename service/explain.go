package service

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/access"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

func (s *Service) ExplainTask(
	ctx context.Context, in *cleanupv1.ExplainTaskRequest,
) (*cleanupv1.ExplainTaskResponse, error) {
	e, err := s.runs.ExplainTask(ctx, in.GetTask())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ExplainTaskResponse{Task: in.GetTask(), ReferenceTime: timestamppb.New(e.Now), Skips: e.Skips}
	if e.Parents != nil {
		out.Parents, out.ParentCount = statementMessage(*e.Parents), e.Rows
	}
	for _, s := range e.Statements {
		out.Statements = append(out.Statements, statementMessage(s))
	}
	return out, nil
}

func statementMessage(s insight.Statement) *cleanupv1.ExplainedStatement {
	return &cleanupv1.ExplainedStatement{
		Table:          s.Table,
		Action:         enumOf[cleanupv1.PreviewAction](s.Action),
		Rule:           s.Rule,
		Sql:            s.SQL,
		Parameters:     s.Parameters,
		ScanMethod:     scanMethods[s.Scan.Method],
		Index:          s.Scan.Index,
		PartitionCount: int32(s.Partitions),
	}
}

func (s *Service) ExplainRow(
	ctx context.Context, in *cleanupv1.ExplainRowRequest,
) (*cleanupv1.ExplainRowResponse, error) {
	key, err := parseRow(in)
	if err != nil {
		return nil, err
	}
	isAdmin := access.FromContext(ctx).Role >= access.Admin
	x, err := s.runs.ExplainRow(ctx, in.GetTable(), key, isAdmin,
		func() error { return mayExplainByText(ctx, in.GetTable()) })
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ExplainRowResponse{
		Table:           x.Table,
		Exists:          x.Exists,
		ReferenceTime:   timestamppb.New(x.Now),
		Verdict:         enumOf[cleanupv1.Verdict](x.Verdict),
		Task:            x.Task,
		DeleteAfterTime: timestamp(x.Since),
		Why:             x.Why,
	}
	for _, step := range x.Steps {
		out.Steps = append(out.Steps, stepMessage(step))
	}
	for _, f := range x.Trash {
		if f.KeyIsText && !isAdmin {
			f.Key = ""
		}
		out.Trash = append(out.Trash, &cleanupv1.TrashedRow{
			RunId: f.Run, Task: f.Task, Table: f.Root, Key: f.Key, ExpireTime: timestamp(f.Expires),
		})
	}
	for _, r := range x.Deletions {
		out.Runs = append(out.Runs, &cleanupv1.ExplainedRun{
			RunId:       r.RunID,
			StartTime:   timestamppb.New(r.StartTime),
			RowsDeleted: r.RowsDeleted,
			Tasks:       r.Tasks,
		})
	}
	return out, nil
}

// parseRow fails with failure.Violations if a text is missing or invalid.
func parseRow(in *cleanupv1.ExplainRowRequest) (key []insight.KeyColumn, err error) {
	var wrong failure.Violations
	check := func(field, text string) {
		if !connection.IsStorable(text) {
			wrong.Add(field, "contains a character that the database cannot store")
		}
	}
	check("table", in.GetTable())
	if in.GetTable() == "" {
		wrong.Add("table", "is missing")
		if len(in.GetKey()) == 0 { // without a key, the error says which keys the table has
			wrong.Add("key", "is missing")
		}
	}
	for i, c := range in.GetKey() {
		field := fmt.Sprintf("key[%d].", i)
		check(field+"column", c.GetColumn())
		check(field+"value", c.GetValue())
		if c.GetValue() == "" {
			wrong.Add(field+"value", "is missing")
		}
		key = append(key, insight.KeyColumn{Column: c.GetColumn(), Value: c.GetValue()})
	}
	if wrong != nil {
		return nil, wrong
	}
	return key, nil
}

// mayExplainByText allows a text as key only to admins, since it may be an address or a session key. Such calls are
// audited.
func mayExplainByText(ctx context.Context, table string) error {
	if access.FromContext(ctx).Role < access.Admin {
		audit.Insist(ctx)
		return status.Errorf(codes.PermissionDenied, "a text as key needs the role %s", access.Admin)
	}
	return audit.Note(ctx, nil, audit.Details{"table": table})
}

func stepMessage(s insight.StepExplanation) *cleanupv1.ExplainedStep {
	out := &cleanupv1.ExplainedStep{
		Task:            s.Task,
		Action:          enumOf[cleanupv1.PreviewAction](s.Action),
		Rule:            s.Rule,
		OnHold:          s.OnHold,
		Verdict:         enumOf[cleanupv1.Verdict](s.Verdict),
		DeleteAfterTime: timestamp(s.Since),
		Why:             s.Why,
	}
	for _, h := range s.OnHoldBy {
		out.Holds = append(out.Holds, &cleanupv1.ExplainedHold{HoldId: h.ID, Reason: h.Reason})
	}
	for _, p := range s.Conditions {
		truth := cleanupv1.Truth_TRUTH_UNKNOWN
		switch {
		case p.True == nil:
		case *p.True:
			truth = cleanupv1.Truth_TRUTH_TRUE
		default:
			truth = cleanupv1.Truth_TRUTH_FALSE
		}
		out.Parts = append(out.Parts, &cleanupv1.ExplainedPart{
			Of:          p.Of,
			Alternative: int32(p.Alternative),
			Text:        p.Text,
			Truth:       truth,
			Values:      p.Values,
		})
	}
	return out
}
