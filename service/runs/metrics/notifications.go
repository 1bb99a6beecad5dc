package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type Notifications struct{ total *prometheus.CounterVec }

func NewNotifications(r prometheus.Registerer, targets []string) *Notifications {
	n := &Notifications{promauto.With(r).NewCounterVec(
		prometheus.CounterOpts{
			Name: "cleanupd_notifications_total",
			Help: "Notifications of this replica, by target and outcome: sent, failed (an attempt, which is repeated), " +
				"given_up (after a day).",
		},
		[]string{"target", "outcome"},
	)}
	for _, target := range targets {
		for _, outcome := range []string{"sent", "failed", "given_up"} {
			n.total.WithLabelValues(target, outcome)
		}
	}
	return n
}

func (n *Notifications) Sent(target string) { n.total.WithLabelValues(target, "sent").Inc() }

func (n *Notifications) Failed(target string) { n.total.WithLabelValues(target, "failed").Inc() }

func (n *Notifications) GivenUp(target string) { n.total.WithLabelValues(target, "given_up").Inc() }
