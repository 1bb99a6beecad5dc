package runs

import (
	"context"
	"strings"
	"sync"

	"github.com/cleanupd/cleanupd/service/runs/metrics"
	"github.com/cleanupd/cleanupd/service/runs/notify"
)

// notifyPolls is after how many intervals of PollEvery notifications are stored and sent again.
const notifyPolls = 2

func newNotifier(m *Manager) *notify.Notifier {
	database := m.calls.Config().ConnConfig
	host := database.Host
	if strings.HasPrefix(host, "/") { // a folder with a socket
		host = ""
	}
	return &notify.Notifier{
		Config:   m.config.Notify,
		Pool:     m.calls,
		Owner:    m.owner,
		Origin:   notify.Origin{Database: database.Database, Host: host, Instance: m.config.Instance},
		Counters: metrics.NewNotifications(m.metrics, m.config.Notify.Names()),
		Log:      m.log,
	}
}

// Notify stores and sends the notifications that are due, each once.
func (m *Manager) Notify(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if err := m.notifier.Collect(ctx); err != nil {
		m.log.Warn("cannot store notifications", "error", err)
	}
	for _, target := range m.notifier.Targets {
		wg.Go(func() {
			if err := m.notifier.Deliver(ctx, target); err != nil {
				m.log.Warn("cannot send notifications", "error", err)
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
