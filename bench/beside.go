package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/localpg"
)

// The application is simulated by pgbench's own transactions, at a rate that leaves the machine some room.
const (
	besideDatabase = "application"
	besideScale    = "5"
	besideRate     = "200" // transactions a second
)

type beside struct {
	cmd   *exec.Cmd
	dir   string
	since time.Time // transactions count from then on
}

func prepareBeside(ctx context.Context, pg *localpg.Server) error {
	return pg.Client(ctx, "pgbench", "-q", "-i", "-s", besideScale, besideDatabase).Run()
}

const beginning = 10 * time.Second

const atWork = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '" + besideDatabase + "' AND query = " +
	"'END;' AND state = 'idle')"

// startBeside starts the application, and returns when it completes transactions.
func startBeside(ctx context.Context, pg *localpg.Server, super *pgx.Conn) (*beside, error) {
	dir, err := os.MkdirTemp("", "cleanupd-bench-")
	if err != nil {
		return nil, err
	}
	cmd := pg.Client(ctx, "pgbench", "-n", "-c", "2", "-j", "1", "-T", "3600", "-R", besideRate, "-l", "--log-prefix",
		filepath.Join(dir, "log"), besideDatabase)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &beside{cmd: cmd, dir: dir}
	if _, err := backoff.Retry(ctx, func() (yes bool, err error) {
		if err = super.QueryRow(ctx, atWork).Scan(&yes); err != nil {
			return false, backoff.Permanent(err)
		}
		if !yes {
			err = errors.New("pgbench has not ended a transaction")
		}
		return yes, err
	}, backoff.WithBackOff(
		backoff.NewConstantBackOff(10*time.Millisecond),
	), backoff.WithMaxElapsedTime(beginning)); err != nil {
		_, ended := b.end()
		return nil, errors.Join(err, ended)
	}
	b.since = time.Now()
	return b, nil
}

// end returns how long the application's transactions took, from their scheduled start.
func (b *beside) end() ([]time.Duration, error) {
	defer func() { _ = os.RemoveAll(b.dir) }()
	_ = b.cmd.Process.Signal(syscall.SIGALRM) // makes pgbench end as if its time were over, and complete its log
	if err := b.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("pgbench: %w", err)
	}
	logs, err := filepath.Glob(filepath.Join(b.dir, "log*"))
	if err != nil || len(logs) == 0 { // pgbench did not start
		return nil, err
	}
	file, err := os.Open(logs[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var took []time.Duration
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var client, transaction, us, script, endSeconds, endMicroseconds int64
		if _, err := fmt.Sscan(
			lines.Text(), &client, &transaction, &us, &script, &endSeconds, &endMicroseconds,
		); err != nil {
			return nil, fmt.Errorf("pgbench's log: %w", err)
		}
		if time.Unix(endSeconds, endMicroseconds*1000).After(b.since) {
			took = append(took, time.Duration(us)*time.Microsecond)
		}
	}
	return took, nil
}

// percentile returns the value below which a part of the values are, for example 0.99; 0 without values.
func percentile(values []time.Duration, part float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}
