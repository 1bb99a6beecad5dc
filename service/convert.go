package service

import (
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

// enumOf returns the value of an enum by its name without the enum's prefix; UNSPECIFIED if there is no such value.
func enumOf[E interface {
	~int32
	protoreflect.Enum
}, S ~string](name S) E {
	values := E(0).Descriptor().Values()
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	if v := values.ByName(protoreflect.Name(prefix + string(name))); v != nil {
		return E(v.Number())
	}
	return 0
}

func runMessage(r *store.Run) *cleanupv1.Run {
	out := &cleanupv1.Run{
		Id:              r.ID,
		State:           enumOf[cleanupv1.RunState](r.State),
		DryRun:          r.DryRun,
		RequestedBy:     r.RequestedBy,
		ReferenceTime:   timestamp(r.ReferenceTime),
		CreateTime:      timestamppb.New(r.CreateTime),
		StartTime:       timestamp(r.StartTime),
		EndTime:         timestamp(r.EndTime),
		Error:           r.Error,
		Plan:            r.Plan,
		WhatIf:          whatIfMessage(r.WhatIf),
		Reason:          enumOf[cleanupv1.RefusalReason](r.Reason()),
		AcceptGuards:    trippedMessages(r.Accepted),
		LastSequence:    r.LastSequence,
		Pace:            enumOf[cleanupv1.Pace](r.Pace),
		PauseTime:       timestamp(r.PauseTime),
		PausedBy:        r.PausedBy,
		WindowOpenTime:  timestamp(r.WindowOpenTime),
		WaitsForRunId:   r.WaitsFor,
		Interrupted:     r.Interrupted,
		PauseStopsClock: r.PauseStopsClock,
	}
	if r.Undo > 0 {
		out.Undo = durationpb.New(r.Undo)
	}
	if r.Restore != nil {
		out.RestoredRunId = r.Restore.Run
	}
	for i := range r.Results {
		result := resultMessage(&r.Results[i])
		out.Results = append(out.Results, result)
		out.TrashBytes += result.GetTrashBytes()
		for _, p := range result.GetPreview() {
			out.TrippedGuards = append(out.TrippedGuards, p.GetGuards()...)
		}
	}
	return out
}

func resultMessage(t *store.Result) *cleanupv1.TaskResult {
	out := &cleanupv1.TaskResult{
		Task:                     t.Task,
		State:                    enumOf[cleanupv1.TaskState](t.State),
		RowsDeleted:              t.RowsDeleted,
		RowsUpdated:              t.RowsUpdated,
		RowsCascaded:             t.RowsCascaded,
		RowsRestored:             t.RowsRestored,
		RowsExisting:             t.RowsExisting,
		UndoExpireTime:           timestamp(t.UndoExpireTime),
		TablesDropped:            t.TablesDropped,
		PartitionsRemoved:        t.PartitionsRemoved,
		Batches:                  t.Batches,
		StartTime:                timestamp(t.StartTime),
		EndTime:                  timestamp(t.EndTime),
		Error:                    t.Error,
		RemoteDeliveriesRetained: t.RemoteDeliveriesRetained,
		RowsFailed:               t.RowsFailed,
		RowsLocked:               t.RowsLocked,
		RowsSuppressed:           t.RowsSuppressed,
		RowsDependent:            t.RowsDependent,
		RowsRetained:             t.RowsRetained,
		TablesRetained:           t.TablesRetained,
		Detail:                   t.Detail,
		Reason:                   enumOf[cleanupv1.RefusalReason](t.Reason),
		Metadata:                 t.Metadata,
		RowsOnHold:               t.RowsOnHold,
	}
	out.Details = messages(t.Details)
	for _, s := range t.Space {
		out.Space = append(out.Space, &cleanupv1.TableSpace{
			Table:            s.Relation,
			RowsDeleted:      s.RowsDeleted,
			RowsCascaded:     s.RowsCascaded,
			TableBytesBefore: s.TableBytesBefore,
			IndexBytesBefore: s.IndexBytesBefore,
			TableBytesAfter:  s.TableBytesAfter,
			IndexBytesAfter:  s.IndexBytesAfter,
			DeadBytes:        s.DeadBytes,
			FreeBytes:        s.FreeBytes,
		})
	}
	for _, p := range t.Preview {
		out.TrashBytes += p.TrashBytes
		out.Preview = append(out.Preview, &cleanupv1.TablePreview{
			Table:        p.Table,
			Action:       enumOf[cleanupv1.PreviewAction](p.Action),
			Rows:         p.Rows,
			RowsCascaded: p.Cascaded,
			RowsTotal:    p.RowsTotal, RowsTotalEstimated: p.TotalEstimated,
			Bytes:        p.Bytes,
			TrashBytes:   p.TrashBytes,
			NoUndo:       p.NoUndo,
			Tables:       p.Tables,
			Partitions:   p.Partitions,
			Names:        p.Names,
			OldestTime:   timestamp(p.Oldest),
			NewestTime:   timestamp(p.Newest),
			Sample:       p.Sample,
			Rule:         p.Rule,
			Remarks:      p.Remarks,
			BaselineRows: p.BaselineRows,
			Guards:       trippedMessages(p.Guards),
		})
	}
	return out
}

func messages(list []message.Message) (out []*cleanupv1.Message) {
	for _, m := range list {
		out = append(out, &cleanupv1.Message{Code: m.Code, Params: m.Params, Text: m.Text})
	}
	return out
}

func eventMessage(e store.Event) *cleanupv1.RunEvent {
	out := &cleanupv1.RunEvent{
		RunId:         e.RunID,
		Sequence:      e.Sequence,
		Time:          timestamppb.New(e.Time),
		LogGeneration: e.Generation,
	}
	switch e.Kind {
	case store.RunStarted:
		out.Event = &cleanupv1.RunEvent_RunStarted{RunStarted: &cleanupv1.RunStarted{Run: runMessage(e.Run)}}
	case store.TaskStarted:
		out.Event = &cleanupv1.RunEvent_TaskStarted{TaskStarted: &cleanupv1.TaskStarted{
			Task: e.Task, Position: int32(e.Position), TaskCount: int32(e.Count),
		}}
	case store.TaskProgress:
		p := e.Progress
		out.Event = &cleanupv1.RunEvent_TaskProgress{TaskProgress: &cleanupv1.TaskProgress{
			Task:              e.Task,
			Object:            p.Object,
			RowsDeleted:       p.RowsDeleted,
			RowsUpdated:       p.RowsUpdated,
			RowsCascaded:      p.RowsCascaded,
			RowsRestored:      p.RowsRestored,
			TablesDropped:     p.TablesDropped,
			PartitionsRemoved: p.PartitionsRemoved,
			Batches:           p.Batches,
			RowsExpected:      p.RowsExpected,
			RowsPerSecond:     p.RowsPerSecond,
			ThrottledBy:       throttleMessage(p.Throttle),
			ScanMethod:        scanMethods[p.Scan.Method],
			Index:             p.Scan.Index,
			Pace:              enumOf[cleanupv1.Pace](p.Pace),
		}}
	case store.TaskFinished:
		out.Event = &cleanupv1.RunEvent_TaskFinished{
			TaskFinished: &cleanupv1.TaskFinished{Result: resultMessage(e.Result)},
		}
	case store.LogLine:
		out.Event = &cleanupv1.RunEvent_Log{Log: &cleanupv1.LogEntry{
			Level:   enumOf[cleanupv1.LogLevel](e.Level),
			Task:    e.Task,
			Message: e.Message,
			Code:    e.Code,
			Params:  e.Params,
		}}
	case store.RunFinished:
		out.Event = &cleanupv1.RunEvent_RunFinished{RunFinished: &cleanupv1.RunFinished{Run: runMessage(e.Run)}}
	}
	return out
}

// These maps translate values that the API names differently.
var (
	scanMethods = map[purge.ScanMethod]cleanupv1.ScanMethod{
		purge.TableScan:     cleanupv1.ScanMethod_SCAN_METHOD_TABLE,
		purge.IndexScan:     cleanupv1.ScanMethod_SCAN_METHOD_INDEX,
		purge.KeyScan:       cleanupv1.ScanMethod_SCAN_METHOD_KEY,
		purge.PartitionDrop: cleanupv1.ScanMethod_SCAN_METHOD_PARTITION_DROP,
		purge.PlannerScan:   cleanupv1.ScanMethod_SCAN_METHOD_PLANNER,
	}
	throttleReasons = map[throttle.Reason]cleanupv1.ThrottleReason{
		throttle.ReplicaLag:      cleanupv1.ThrottleReason_THROTTLE_REASON_REPLICA_LAG,
		throttle.HiddenLag:       cleanupv1.ThrottleReason_THROTTLE_REASON_REPLICA_LAG_HIDDEN,
		throttle.ActiveSessions:  cleanupv1.ThrottleReason_THROTTLE_REASON_ACTIVE_SESSIONS,
		throttle.WaitingSessions: cleanupv1.ThrottleReason_THROTTLE_REASON_WAITING_SESSIONS,
		throttle.Blocking:        cleanupv1.ThrottleReason_THROTTLE_REASON_BLOCKING,
		throttle.WALRate:         cleanupv1.ThrottleReason_THROTTLE_REASON_WAL_RATE,
		throttle.RetainedWAL:     cleanupv1.ThrottleReason_THROTTLE_REASON_RETAINED_WAL,
		throttle.RowRate:         cleanupv1.ThrottleReason_THROTTLE_REASON_ROW_RATE,
		throttle.Gentle:          cleanupv1.ThrottleReason_THROTTLE_REASON_GENTLE,
	}
)

// throttleMessage returns nil if no batch waits.
func throttleMessage(t purge.Throttle) *cleanupv1.Throttle {
	if t.Reason == "" {
		return nil
	}
	return &cleanupv1.Throttle{Reason: throttleReasons[t.Reason], Detail: t.Detail}
}

func timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
