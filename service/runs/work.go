package runs

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/metrics"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/service/runs/store"
)

const (
	// pruneEvery is how often old runs are deleted, unless they are stored for a shorter time.
	pruneEvery = time.Hour
	// expireEvery is how often expired trash is deleted.
	expireEvery = time.Minute
	// sayOnHoldEvery is how often to log that a hold delays expiry.
	sayOnHoldEvery = time.Hour
	// planAges sets how long the results of dry runs are stored, as a multiple of the greatest age of a saved plan.
	planAges = 2
	// heartbeatEvery is how often a replica records that it is running. Without a record for replicaTimeout it counts as
	// gone.
	heartbeatEvery = 30 * time.Second
	replicaTimeout = 2 * time.Minute
)

// Work claims runs and executes them until the context ends. It then lets the current batches finish and releases its
// runs. It also does the periodic work of a replica, such as starting scheduled runs, deleting old ones and sending
// notifications.
func (m *Manager) Work(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		switch none, err := m.Tasks.Profile.NoCampaign(ctx, m.pool); {
		case err != nil:
			m.log.Warn("could not determine whether this is a Campaign database; task metrics do not start at 0",
				"error", err)
		case !none:
			m.counters.StartTasks()
		}
	})
	wg.Go(func() {
		pause := min(pruneEvery, m.config.History, planAges*m.config.PlanMaxAge)
		m.repeat(ctx, pause, "delete old runs", m.prune)
	})
	wg.Go(func() { m.repeat(ctx, expireEvery, "delete expired trash", m.expireTrash) })
	wg.Go(func() {
		m.repeat(ctx, heartbeatEvery, "record heartbeat", m.heartbeat)
		m.deregister(ctx)
	})
	wg.Go(func() { m.repeat(ctx, m.config.PollEvery, "end pauses and apply windows", m.tickPauses) })
	if m.config.KeepSchedule {
		wg.Go(func() { m.repeat(ctx, m.config.PollEvery, "start scheduled runs", m.tickSchedule) })
	}
	if m.config.SampleEvery > 0 {
		// Wait first, because runs may be waiting for this replica to start.
		for what, do := range map[string]func(context.Context) error{
			"sample the tables": m.sampler.Tick,
			"make a forecast":   m.Forecaster.Tick,
		} {
			wg.Go(func() {
				afterPause(ctx, m.config.SampleEvery, func() { m.repeat(ctx, m.config.SampleEvery, what, do) })
			})
		}
	}
	m.notify(ctx, &wg)
	m.workOnRuns(ctx)
}

func afterPause(ctx context.Context, pause time.Duration, do func()) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
		do()
	}
}

// repeat calls do at once, then after each pause, until the context ends.
func (m *Manager) repeat(ctx context.Context, pause time.Duration, what string, do func(context.Context) error) {
	for {
		err := failure.Catch(func() error { return do(ctx) })
		failure.LogPanic(m.log, what, err)
		if err != nil && ctx.Err() == nil {
			m.log.Warn("could not "+what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (m *Manager) prune(ctx context.Context) error {
	if err := store.PruneDryRuns(ctx, m.pool, planAges*m.config.PlanMaxAge); err != nil {
		return err
	}
	if err := store.PruneNotifications(ctx, m.pool, m.config.History); err != nil {
		return err
	}
	return store.PruneRuns(ctx, m.pool, m.config.History)
}

func (m *Manager) heartbeat(ctx context.Context) error {
	return store.RecordReplica(ctx, m.calls, m.config.Replica, m.config.Version, m.config.KeepSchedule)
}

func (m *Manager) deregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := store.DeleteReplica(ctx, m.calls, m.config.Replica); err != nil {
		m.log.Warn("could not deregister this replica", "error", err)
	}
}

// Notifications are stored and sent every notifyPolls polls.
const notifyPolls = 2

func newNotifier(m *Manager) *notify.Notifier {
	database := m.calls.Config().ConnConfig
	host := database.Host
	if strings.HasPrefix(host, "/") { // a folder with a socket
		host = ""
	}
	return &notify.Notifier{
		Config: m.config.Notify,
		Pool:   m.calls,
		Owner:  m.owner,
		Origin: notify.Origin{Database: database.Database, Host: host, Instance: m.config.Instance},
		Count:  metrics.NewNotifications(m.metrics, m.config.Notify.Names()),
		Log:    m.log,
	}
}

// Notify stores and sends the notifications that are due, each once.
func (m *Manager) Notify(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if err := m.notifier.Collect(ctx); err != nil {
		m.log.Warn("could not store notifications", "error", err)
	}
	for _, target := range m.notifier.Targets {
		wg.Go(func() {
			if err := m.notifier.Deliver(ctx, target); err != nil {
				m.log.Warn("could not send notifications", "error", err)
			}
		})
	}
}

// notify sends to each target independently, so that a slow one does not delay the others.
func (m *Manager) notify(ctx context.Context, wg *sync.WaitGroup) {
	if len(m.notifier.Targets) == 0 {
		return
	}
	pause := notifyPolls * m.config.PollEvery
	wg.Go(func() { m.repeat(ctx, pause, "store notifications", m.notifier.Collect) })
	for _, target := range m.notifier.Targets {
		deliver := func(ctx context.Context) error { return m.notifier.Deliver(ctx, target) }
		wg.Go(func() { m.repeat(ctx, pause, "send notifications", deliver) })
	}
}
