package growth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

type Sampler struct {
	Pool  *pgxpool.Pool
	Owner *store.Owner
	// Masks match the names of work tables, which are sampled by kind.
	Masks []insight.Mask
	Log   *slog.Logger
}

const (
	sampleTimeout = time.Minute
	// sampleEvery is how often tables are sampled while no run ends.
	sampleEvery      = "interval '24 hours'"
	statementTimeout = "SET LOCAL statement_timeout = '30s'"
)

// isDue is the SQL condition that the tables have to be sampled, which happens daily and after each run that
// deletes. It is also true if the last sampling is in the future, because the clock was set back.
const isDue = `(last_time IS NULL OR last_time NOT BETWEEN clock_timestamp() - ` + sampleEvery + ` AND clock_timestamp()
	OR EXISTS (SELECT FROM cleanupd.run WHERE NOT dry_run AND end_time > last_time))`

// Tick samples the tables if that is due. If several replicas call it at the same time, only one of them samples.
func (s *Sampler) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	if owns, err := s.Owner.Owns(ctx, s.Pool); err != nil || !owns {
		return err
	}
	var due bool
	err := s.Pool.QueryRow(ctx, "SELECT "+isDue+" FROM cleanupd.table_sampler").Scan(&due)
	if err != nil || !due {
		return err
	}
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statementTimeout); err != nil {
			return err
		}
		last, locked, err := lock(ctx, tx)
		if err != nil || !locked {
			return err
		}
		start := time.Now()
		n, err := s.sample(ctx, tx, last)
		if err != nil {
			return err
		}
		s.Log.Info("sampled the tables", "changed", n, "duration", time.Since(start))
		return nil
	})
}

// lock reports in locked that a sampling is due and that no other replica makes it. last is nil if there was no
// sampling before.
func lock(ctx context.Context, tx pgx.Tx) (last *time.Time, locked bool, err error) {
	err = tx.QueryRow(ctx, "SELECT last_time FROM cleanupd.table_sampler WHERE "+isDue+" FOR UPDATE SKIP LOCKED").
		Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return last, err == nil, err
}

// sample samples the tables; last is when that was done before, or nil if never.
func (s *Sampler) sample(ctx context.Context, tx pgx.Tx, last *time.Time) (changed int64, err error) {
	now, err := store.Now(ctx, tx)
	if err != nil {
		return 0, err
	}
	found, err := insight.Measure(ctx, tx, s.Masks)
	if err != nil {
		return 0, err
	}
	counters, err := readCounters(ctx, tx, last)
	if err != nil {
		return 0, fmt.Errorf("read the counters of rows: %w", err)
	}
	b := newBatch(found)
	b.count(found, counters)
	if changed, err = b.store(ctx, tx, now); err != nil {
		return 0, fmt.Errorf("store the samples: %w", err)
	}
	if err := counters.store(ctx, tx); err != nil {
		return 0, fmt.Errorf("store the counters of rows: %w", err)
	}
	if err := prune(ctx, tx, now); err != nil {
		return 0, fmt.Errorf("prune the samples: %w", err)
	}
	return changed, nil
}
