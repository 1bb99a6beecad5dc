package service

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/tasks/execute"
)

// ExplainTask implements cleanupv1.CleanupServiceServer.
func (s *Service) ExplainTask(ctx context.Context, in *cleanupv1.ExplainTaskRequest) (*cleanupv1.ExplainTaskResponse, error) {
	e, err := s.runs.ExplainTask(ctx, in.GetTask())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ExplainTaskResponse{Task: in.GetTask(), ReferenceTime: timestamppb.New(e.Now), Skips: e.Skips}
	if e.Set != nil {
		out.Set, out.SetRows = statementMessage(*e.Set), e.Rows
	}
	for _, told := range e.Statements {
		out.Statements = append(out.Statements, statementMessage(told))
	}
	return out, nil
}

func statementMessage(told execute.Statement) *cleanupv1.ExplainedStatement {
	return &cleanupv1.ExplainedStatement{
		Table: told.Table, Action: cleanupv1.PreviewAction(cleanupv1.PreviewAction_value["PREVIEW_ACTION_"+string(told.Action)]), Rule: told.Rule,
		Sql: told.SQL, Parameters: told.Parameters, Way: told.Way, Partitions: int32(told.Partitions),
	}
}
