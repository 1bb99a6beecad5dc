package metrics

import (
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// RegisterPools uses units and names as Prometheus recommends.
func RegisterPools(r prometheus.Registerer, pools ...*pgxpool.Pool) {
	pools = slices.Compact(pools) // there may be only one
	sum := func(value func(*pgxpool.Stat) float64) func() float64 {
		return func() (total float64) {
			for _, pool := range pools {
				total += value(pool.Stat())
			}
			return total
		}
	}
	f := promauto.With(r)
	for state, n := range map[string]func(*pgxpool.Stat) int32{
		"idle":    (*pgxpool.Stat).IdleConns,
		"in_use":  (*pgxpool.Stat).AcquiredConns,
		"opening": (*pgxpool.Stat).ConstructingConns,
	} {
		f.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name:        "cleanupd_pool_connections",
				Help:        "Connections to the database that is cleaned, by state.",
				ConstLabels: prometheus.Labels{"state": state},
			},
			sum(func(s *pgxpool.Stat) float64 { return float64(n(s)) }),
		)
	}
	f.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "cleanupd_pool_max_connections", Help: "How many connections there may be."},
		sum(func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) }))
	for _, c := range []struct {
		name, help string
		value      func(*pgxpool.Stat) float64
	}{
		{
			"cleanupd_pool_acquires_total",
			"How often a connection was taken.",
			func(s *pgxpool.Stat) float64 { return float64(s.AcquireCount()) },
		},
		{
			"cleanupd_pool_waits_total",
			"How often none was idle when one was to be taken.",
			func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) },
		},
		{
			"cleanupd_pool_wait_seconds_total",
			"How long was waited for those, until one was free or opened.",
			func(s *pgxpool.Stat) float64 { return s.EmptyAcquireWaitTime().Seconds() },
		},
	} {
		f.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, sum(c.value))
	}
}
