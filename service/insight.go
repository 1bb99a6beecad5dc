package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/service/runs/capacity"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

func (s *Service) ListTables(
	ctx context.Context, in *cleanupv1.ListTablesRequest,
) (*cleanupv1.ListTablesResponse, error) {
	query, err := parseTablesQuery(in)
	if err != nil {
		return nil, err
	}
	page, err := s.Tables.List(ctx, query)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListTablesResponse{SampleTime: timestamp(page.SampleTime)}
	if page.Next != (capacity.Key{}) {
		out.NextPageToken = pagetoken.Format(page.Next)
	}
	for _, t := range page.Tables {
		out.Tables = append(out.Tables, tableMessage(t))
	}
	return out, nil
}

var tableOrders = map[cleanupv1.TableOrder]capacity.Order{
	cleanupv1.TableOrder_TABLE_ORDER_UNSPECIFIED: capacity.ByName,
	cleanupv1.TableOrder_TABLE_ORDER_NAME:        capacity.ByName,
	cleanupv1.TableOrder_TABLE_ORDER_BYTES:       capacity.ByBytes,
	cleanupv1.TableOrder_TABLE_ORDER_GROWTH:      capacity.ByGrowth,
	cleanupv1.TableOrder_TABLE_ORDER_ROWS:        capacity.ByRows,
}

// parseTablesQuery fails with failure.Violations, or with pagetoken.ErrInvalid if the token belongs to another
// order.
func parseTablesQuery(in *cleanupv1.ListTablesRequest) (q capacity.Query, err error) {
	var wrong failure.Violations
	order, ok := tableOrders[in.GetOrderBy()]
	if !ok {
		wrong.Add("order_by", "invalid order")
	}
	if _, ok := cleanupv1.TableView_name[int32(in.GetView())]; !ok {
		wrong.Add("view", "invalid view")
	}
	size := in.GetPageSize()
	switch {
	case size < 0:
		wrong.Add("page_size", "must not be negative")
	case size == 0, size > maxListed:
		size = maxListed
	}
	if wrong != nil {
		return q, wrong
	}
	q = capacity.Query{
		Order:         order,
		UncoveredOnly: in.GetUncoveredOnly(),
		Brief:         in.GetView() == cleanupv1.TableView_TABLE_VIEW_BASIC,
		SuggestAll:    in.GetSuggestAll(),
		Size:          int(size),
	}
	q.After, err = pagetoken.Parse[capacity.Key](in.GetPageToken())
	if err == nil && in.GetPageToken() != "" && q.After.Order != order {
		err = pagetoken.ErrInvalid
	}
	return q, err
}

func tableMessage(t *capacity.Table) *cleanupv1.Table {
	out := &cleanupv1.Table{
		Name:               t.Name,
		Kind:               enumOf[cleanupv1.TableKind](t.Kind),
		CoveredBy:          t.CoveredBy,
		Rows:               t.Rows,
		Bytes:              t.Bytes,
		IndexBytes:         t.IndexBytes,
		Growth_7Days:       t.Week,
		Growth_30Days:      t.Month,
		RowsInsertedPerDay: t.Inserted,
		RowsDeletedPerDay:  t.Deleted,
		TableCount:         int64(len(t.Members)),
		DeadBytes:          t.DeadBytes,
		FreeBytes:          t.FreeBytes,
		Suggestion:         suggestionMessage(t),
	}
	for _, r := range t.Retained {
		out.Retained = append(out.Retained, &cleanupv1.RetainedTables{
			Reason: r.Reason, Tables: r.Tables, Bytes: r.Bytes,
		})
	}
	for _, d := range t.Dates {
		out.DateColumns = append(out.DateColumns, &cleanupv1.DateColumn{
			Column:     d.Column,
			Indexed:    d.Indexed,
			OldestTime: storedTime(d.Oldest),
			NewestTime: storedTime(d.Newest),
			Source:     enumOf[cleanupv1.DateSource](d.Source),
		})
	}
	for _, k := range t.ReferencedBy {
		out.ReferencedBy = append(out.ReferencedBy, &cleanupv1.TableReference{
			Name: k.Name, Table: k.Table, Columns: k.Columns, OnDelete: k.OnDelete,
		})
	}
	for _, p := range t.History {
		out.History = append(out.History, &cleanupv1.TableSize{
			SampleTime: timestamppb.New(p.Time), Rows: p.Rows, Bytes: p.Bytes,
		})
	}
	return out
}

// storedTime returns nil if the time is unknown, or outside the years 1 to 9999, which the API allows.
func storedTime(t *time.Time) *timestamppb.Timestamp {
	if out := timestamp(t); out.CheckValid() == nil {
		return out
	}
	return nil
}

func suggestionMessage(t *capacity.Table) *cleanupv1.PolicySuggestion {
	s := t.Suggestion
	if s == nil {
		return nil
	}
	out := &cleanupv1.PolicySuggestion{Reason: s.Reason, PreviewCommand: s.Command()}
	if s.Policy == "" {
		return out
	}
	out.ColumnReason = s.ColumnReason
	out.Policy = &cleanupv1.Policy{
		Name:        s.Policy,
		Table:       t.Name,
		Description: describeSuggestion(t),
		OlderThan:   &cleanupv1.OlderThan{Column: s.Column, Age: &cleanupv1.OlderThan_Days{Days: s.Days}},
	}
	if s.Days == 0 {
		out.Policy.OlderThan.Age = &cleanupv1.OlderThan_Hours{}
	}
	return out
}

// describeSuggestion says what would otherwise be lost once the policy is set: how large the table was, and why the
// policy has its column.
func describeSuggestion(t *capacity.Table) string {
	s, oldest := t.Suggestion, ""
	for _, d := range t.Dates {
		if d.Column == s.Column && d.Oldest != nil {
			oldest = ", the oldest of " + d.Oldest.UTC().Format(time.DateOnly)
		}
	}
	return fmt.Sprintf("Suggested: %s; %s, about %s rows%s. %s: %s.", s.Reason, humanize.IBytes(uint64(t.Size())),
		humanize.Comma(t.Rows), oldest, s.Column, s.ColumnReason)
}

func (s *Service) GetForecast(
	ctx context.Context, _ *cleanupv1.GetForecastRequest,
) (*cleanupv1.GetForecastResponse, error) {
	f, err := s.runs.Forecaster.Forecast(ctx)
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.GetForecastResponse{
		ForecastTime:     timestamppb.New(f.Time),
		SequencesProblem: f.SequencesProblem,
		Database: &cleanupv1.DatabaseForecast{
			Bytes:                        f.Size.Bytes,
			BytesIn_30Days:               f.Size.In(30, f.Size.PerDay),
			BytesIn_90Days:               f.Size.In(90, f.Size.PerDay),
			BytesIn_30DaysWithoutCleanup: f.Size.In(30, f.Size.WithoutPerDay),
			BytesIn_90DaysWithoutCleanup: f.Size.In(90, f.Size.WithoutPerDay),
		},
	}
	for _, t := range f.Tasks {
		out.Tasks = append(out.Tasks, taskForecast(t))
	}
	for _, q := range f.Sequences {
		m := &cleanupv1.SequenceForecast{
			Sequence:  q.Name,
			Columns:   q.Columns,
			LastValue: q.Last,
			Limit:     q.Limit,
			LimitTime: timestamp(q.End(f.Time)),
		}
		if q.PerDay >= 0 {
			m.ValuesPerDay = &q.PerDay
		}
		out.Sequences = append(out.Sequences, m)
	}
	return out, nil
}

func taskForecast(t capacity.Task) *cleanupv1.TaskForecast {
	m := &cleanupv1.TaskForecast{
		Task:        t.Task,
		Exact:       t.Exact,
		Trend:       enumOf[cleanupv1.Trend](t.Trend),
		FailingTask: t.FailingTask,
		Bound:       enumOf[cleanupv1.ForecastBound](t.Bound),
		Problem:     t.Why,
	}
	if !t.At.IsZero() {
		m.TrendTime = timestamppb.New(t.At)
	}
	if t.Known {
		m.DueNow, m.DueNextRun = &t.Now, &t.NextRun
		if t.Dated {
			m.DuePerDay = t.PerDay[:]
		}
	}
	if t.Rate > 0 {
		m.RowsPerSecond, m.ExpectedDuration = &t.Rate, durationpb.New(t.Took)
	}
	return m
}

func (s *Service) ListRemoteDeliveries(
	ctx context.Context, in *cleanupv1.ListRemoteDeliveriesRequest,
) (*cleanupv1.ListRemoteDeliveriesResponse, error) {
	size, err := parsePageSize(in.GetPageSize(), MaxRemoteDeliveries)
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(in.GetAccount(), 0) {
		return nil, failure.Field("account", "contains a NUL character, which PostgreSQL cannot store")
	}
	list, next, err := store.ListRemoteDeliveries(ctx, s.pool, in.Account, size, in.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListRemoteDeliveriesResponse{NextPageToken: next}
	for _, d := range list {
		out.Deliveries = append(out.Deliveries, &cleanupv1.RemoteDelivery{
			Account:    d.Account,
			RemoteId:   d.RemoteID,
			Label:      d.Label,
			DeliveryId: d.DeliveryID,
			RunId:      d.RunID,
			RetainTime: timestamppb.New(d.RetainTime),
		})
	}
	return out, nil
}
