package delivery

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts deliveries, for operators. Many goroutines can use it at the same time.
type Metrics struct {
	messages *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	queue    *prometheus.GaugeVec
	stalled  prometheus.Gauge

	totals [4]atomic.Int64 // see Totals
}

// Totals are the counts of all clients since the daemon started.
type Totals struct {
	Delivered, Unsubscribed, Retries, Failed int64
}

// Totals returns the counts of all clients.
func (m *Metrics) Totals() Totals {
	return Totals{m.totals[0].Load(), m.totals[1].Load(), m.totals[2].Load(), m.totals[3].Load()}
}

// NewMetrics returns Metrics without counts.
func NewMetrics() *Metrics {
	return &Metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dew_notify_messages_total", Help: "Attempts to deliver a notification, by their result. A retry is another attempt that follows.",
		}, []string{"client", "kind", "result"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dew_notify_delivery_seconds", Help: "Time from the request until the mail server accepted the mail.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 10),
		}, []string{"client", "kind"}),
		queue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dew_notify_queue_messages", Help: "Messages that have not ended, as of the last minute.",
		}, []string{"state"}),
		stalled: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dew_notify_queue_stalled", Help: "1 if messages wait and none has ended for some minutes.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.messages, m.latency, m.queue, m.stalled}
}

// record counts the recorded result of an attempt.
func (m *Metrics) record(o Outcome, now time.Time) {
	if o.Postponed {
		return
	}
	result := string(o.Status)
	if !o.Status.Ended() {
		result = string(Retry)
	}
	m.messages.WithLabelValues(o.Client, o.kind, result).Inc()
	switch o.Status {
	case Delivered:
		m.totals[0].Add(1)
	case Unsubscribed:
		m.totals[1].Add(1)
	case Queued, Retry:
		m.totals[2].Add(1)
	case Failed, Undeliverable:
		m.totals[3].Add(1)
	}
	if o.Status == Delivered && !o.received.IsZero() {
		m.latency.WithLabelValues(o.Client, o.kind).Observe(now.Sub(o.received).Seconds())
	}
}

const (
	// checkEvery is how often the length of the queue is measured.
	checkEvery = time.Minute
	// stallAfter is how long no message may end while some wait.
	stallAfter = 5 * time.Minute
)

// StalledSince returns when the last message ended, if the queue stands still: messages
// wait, and none has ended for some minutes. Otherwise it returns zero.
func (c *Courier) StalledSince() time.Time {
	if since := c.stalledSince.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// checkQueue measures the queue, and warns if it stands still.
func (r *runState) checkQueue() {
	queued, retrying, err := r.c.Queue.Lengths()
	if err != nil {
		r.c.Logger.Error("cannot measure the queue of messages", "err", err)
		return
	}
	if queued+retrying == 0 {
		r.lastEnded = time.Now()
	}
	idle := time.Since(r.lastEnded)
	stalled := idle >= stallAfter
	r.stalledSince.Store(nil)
	if stalled {
		since := r.lastEnded
		r.stalledSince.Store(&since)
		r.c.Logger.Warn("the queue of mails stands still; check the mail server", "messages", queued+retrying, "for", idle.Round(time.Second), "err", r.lastProblem)
	}
	m := r.c.Metrics
	if m == nil {
		return
	}
	m.queue.WithLabelValues(string(Queued)).Set(float64(queued))
	m.queue.WithLabelValues(string(Retry)).Set(float64(retrying))
	m.stalled.Set(0)
	if stalled {
		m.stalled.Set(1)
	}
}

// observe counts results that were just recorded.
func (r *runState) observe(os []Outcome) {
	now := time.Now()
	for _, o := range os {
		if r.c.Metrics != nil {
			r.c.Metrics.record(o, now)
		}
		if o.Status.Ended() && !o.Postponed {
			r.lastEnded = now
			r.stalledSince.Store(nil)
		} else if o.Problem != nil {
			r.lastProblem = o.Problem
		}
	}
}
