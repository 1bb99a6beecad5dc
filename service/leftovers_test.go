package service_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// What a run leaves on mid-sourcing servers is listed by account and id there, page by page, over gRPC and REST.
func TestListRemoteDeliveries(t *testing.T) {
	t.Parallel()
	s := campaign(t)
	s.db.Do("INSERT INTO NmsExtAccount (iExtAccountId, sName) VALUES (1, 'Zoe''s'), (2, 'a')")
	s.db.Do(
		`INSERT INTO NmsDelivery (iDeliveryId, sLabel, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId,
			iDeliveryProviderId) SELECT i, 'Été ' || i, 1, '2000-01-01', 4, 100 - 50 * (i % 2) - i, i % 4
		FROM generate_series(1, 8) i`,
	)
	_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{Tasks: []string{"deliveries"}})
	if err != nil || run.GetResults()[1].GetRemoteDeliveriesRetained() != 8 {
		t.Fatalf("%v: %v", run, err)
	}
	want := []string{" 43 7", " 47 3", " 92 8", " 96 4", "Zoe's 45 5", "Zoe's 49 1", "a 94 6", "a 98 2"}
	for _, c := range []struct {
		account *string
		want    []string
	}{{nil, want}, {proto.String(""), want[:4]}, {proto.String("Zoe's"), want[4:6]}, {proto.String("zoe's"), nil}} {
		var got []string
		token := ""
		for pages := 0; pages == 0 || token != ""; pages++ {
			page, err := s.ListRemoteDeliveries(t.Context(),
				&cleanupv1.ListRemoteDeliveriesRequest{PageSize: 3, PageToken: token, Account: c.account})
			if err != nil || len(page.GetDeliveries()) > 3 || pages > 2 {
				t.Fatalf("page %d: %v, %v", pages, page, err)
			}
			for _, d := range page.GetDeliveries() {
				got = append(got, fmt.Sprint(d.GetAccount(), " ", d.GetRemoteId(), " ", d.GetDeliveryId()))
				if d.GetLabel() != fmt.Sprint("Été ", d.GetDeliveryId()) || d.GetRunId() != run.GetId() ||
					d.GetRetainTime().AsTime().Before(run.GetStartTime().AsTime()) ||
					d.GetRetainTime().AsTime().After(run.GetEndTime().AsTime()) {
					t.Errorf("an entry is %v", d)
				}
			}
			token = page.GetNextPageToken()
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("listed %q, want %q", got, c.want)
		}
	}
	for _, req := range []*cleanupv1.ListRemoteDeliveriesRequest{
		{PageSize: -1},
		{PageToken: "x"},
		{PageToken: "MSAy"},
		{Account: proto.String("x\x00")},
	} {
		_, err := s.ListRemoteDeliveries(t.Context(), req)
		if _, bad := wantCode(t, err, codes.InvalidArgument); len(bad.GetFieldViolations()) != 1 {
			t.Errorf("%v: %v", req, bad)
		}
	}
	first := s.call(t, "GET", "/v1/mid-sourcing/leftovers?pageSize=1&account=a", "")
	next, _ := at(first.lines[0], "nextPageToken").(string)
	second := s.call(t, "GET", "/v1/mid-sourcing/leftovers?page_size=1&account=a&page_token="+next, "")
	for i, got := range []any{at(first.lines[0], "deliveries"), at(second.lines[0], "deliveries")} {
		list, _ := got.([]any)
		if want := []string{"94", "98"}[i]; len(list) != 1 || at(list[0], "remoteId") != want ||
			at(list[0], "account") != "a" ||
			at(list[0], "runId") != run.GetId() {
			t.Errorf("over REST: %v", got)
		}
	}
	if without := s.call(t, "GET", "/v1/mid-sourcing/leftovers?account=", ""); len(
		at(without.lines[0], "deliveries").([]any),
	) != 4 {
		t.Errorf("those without an account: %s", without.body)
	}
	if none := s.call(t, "GET", "/v1/mid-sourcing/leftovers?account=x", ""); none.code != 200 || len(
		at(none.lines[0], "deliveries").([]any),
	) != 0 ||
		at(second.lines[0], "nextPageToken") != "" {
		t.Errorf("none: %d %s; the last page: %s", none.code, none.body, second.body)
	}
}
