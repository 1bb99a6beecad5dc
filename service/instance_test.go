package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// RPCs that a service answers whichever instance owns the database.
var changeNothing = []protoreflect.Name{
	"WatchRun", "GetRun", "ListRuns", "ListTasks", "ListTables", "GetOptions", "GetSchedule", "ListRemoteDeliveries",
	"ExplainTask", "ExplainRow", "ListHolds", "ListPolicies", "GetPolicy", "GetPolicyGrants", "GetForecast",
	"GetGuards", "WhoAmI", "GetServer", "ListAudit", "GetReceipt", "ListReceipts", "ListFormsPurges",
	"ListTrash",
}

// If another instance owns the database, every change is refused. Every RPC must be either in changeNothing or in
// requests.
func TestRPCsOfAnotherInstance(t *testing.T) {
	t.Parallel()
	s, _, _ := formsServer(t)
	_, ended, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"sessions"}})
	if err != nil {
		t.Fatal(err)
	}
	run := ended.GetId()
	held, err := s.CreateHold(t.Context(), &cleanupv1.CreateHoldRequest{
		Hold: &cleanupv1.Hold{
			Reason: "a test",
			What:   &cleanupv1.Hold_Table{Table: &cleanupv1.HeldTable{Name: "XtkAudit"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	guards, err := s.GetGuards(t.Context(), &cleanupv1.GetGuardsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	purge := &cleanupv1.FormsPurge{Name: "loans", Days: 30}
	requests := map[protoreflect.Name]proto.Message{
		"RunCleanup": &cleanupv1.RunCleanupRequest{},
		"CancelRun":  &cleanupv1.CancelRunRequest{RunId: run},
		"SetPace":    &cleanupv1.SetPaceRequest{RunId: run, Pace: cleanupv1.Pace_PACE_FAST},
		"PauseRun":   &cleanupv1.PauseRunRequest{RunId: run},
		"ResumeRun":  &cleanupv1.ResumeRunRequest{RunId: run},
		"SetOptions": &cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{VisitorPurgeDelayDays: proto.Int32(9)}},
		"SetSchedule": &cleanupv1.SetScheduleRequest{
			Schedule: &cleanupv1.Schedule{Cron: "0 4 * * *", MaxDuration: durationpb.New(time.Hour)},
		},
		"SetGuards": &cleanupv1.SetGuardsRequest{Guards: guards.GetGuards()},
		"CreateHold": &cleanupv1.CreateHoldRequest{
			Hold: &cleanupv1.Hold{
				Reason: "a test",
				What:   &cleanupv1.Hold_Everything{Everything: &cleanupv1.HeldEverything{}},
			},
		},
		"ReleaseHold": &cleanupv1.ReleaseHoldRequest{HoldId: held.GetHold().GetId()},
		"FindUserData": &cleanupv1.FindUserDataRequest{
			UserId: "ann",
		},
		"EraseUserData":  &cleanupv1.EraseUserDataRequest{TaskIds: []string{"1"}},
		"SweepDocuments": &cleanupv1.SweepDocumentsRequest{},
		"VerifyErasure": &cleanupv1.VerifyErasureRequest{
			ReceiptId: run,
			UserId:    "ann",
		},
		"SetFormsPurge":    &cleanupv1.SetFormsPurgeRequest{Name: "loans", Purge: purge},
		"DeleteFormsPurge": &cleanupv1.DeleteFormsPurgeRequest{Name: "loans"},
		"SetPolicy":        &cleanupv1.SetPolicyRequest{Policy: oldOrders()},
		"DeletePolicy":     &cleanupv1.DeletePolicyRequest{Name: "old-orders"},
		"RestoreTrash":     &cleanupv1.RestoreTrashRequest{RunId: run},
		"PurgeTrash":       &cleanupv1.PurgeTrashRequest{RunId: run},
	}
	s.db.Do("UPDATE cleanupd.instance SET name = 'production'")
	before := s.db.Strings(
		"SELECT h::text FROM cleanupd.hold h UNION ALL SELECT g::text FROM cleanupd.guards g UNION ALL SELECT " +
			"r::text FROM cleanupd.run r",
	)
	for m := range rpcs {
		if slices.Contains(changeNothing, m.Name()) {
			continue
		}
		if requests[m.Name()] == nil {
			t.Errorf("%s changes something, and is not tried here, or it is none of changeNothing", m.Name())
			continue
		}
		path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
		answer, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, path)
		if err == nil {
			if err = answer.SendMsg(requests[m.Name()]); err == nil {
				err = answer.CloseSend()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		err = answer.RecvMsg(&cleanupv1.GetOptionsResponse{})
		wantCode(t, err, codes.FailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), "cleanupd adopt") {
			t.Errorf("%s: %v", m.Name(), err)
		}
	}
	if after := s.db.Strings(
		"SELECT h::text FROM cleanupd.hold h UNION ALL SELECT g::text FROM cleanupd.guards g UNION ALL SELECT " +
			"r::text FROM cleanupd.run r",
	); !slices.Equal(before, after) {
		t.Errorf("it was %q, and is %q", before, after)
	}
}
