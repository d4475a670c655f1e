package daemon

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// metricsHandlers answers requests about metrics.
type metricsHandlers struct{ *Handlers }

func (h metricsHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /metrics", Needs: access.ReadAll, Raw: h.Metrics.handler(h.Platform.Log), Shape: rest.ReturnsBytes("text/plain")},
	}
}

// Metrics holds the daemon's own measurements for /metrics. Its methods record
// measurements; many goroutines can call them at the same time.
type Metrics struct {
	registry   *prometheus.Registry
	containerd *prometheus.HistogramVec
	commits    prometheus.Histogram
}

// NewMetrics returns Metrics that measure only the process itself at first.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		containerd: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dew_containerd_call_seconds", Help: "Duration of calls to containerd.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"call", "result"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "dew_store_commit_seconds", Help: "Duration of commits to the store, including the wait for the disk.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
		}),
	}
	m.registry.MustRegister(m.containerd, m.commits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ContainerdCall records a call to containerd and its duration.
func (m *Metrics) ContainerdCall(call string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.containerd.WithLabelValues(call, result).Observe(took.Seconds())
}

// StoreCommit records a commit to the store and its duration.
func (m *Metrics) StoreCommit(took time.Duration) { m.commits.Observe(took.Seconds()) }

// Add adds the measurements of another package.
func (m *Metrics) Add(c prometheus.Collector) { m.registry.MustRegister(c) }

// Watch adds counters that other packages hold. They are read only when a client
// requests /metrics.
func (m *Metrics) Watch(logs *logstream.Logs, stats func() runtime.Stats) {
	m.registry.MustRegister(&statsCollector{logs: logs, stats: stats})
}

func (m *Metrics) handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})
}

// statsCollector reads the counts of the logs and of the supervisor.
type statsCollector struct {
	logs  *logstream.Logs
	stats func() runtime.Stats
}

var (
	descTails       = prometheus.NewDesc("dew_log_tails", "Capture files that dewd reads.", nil, nil)
	descBacklog     = prometheus.NewDesc("dew_log_backlog_bytes", "Bytes that processes printed and dewd has not stored in a log yet.", nil, nil)
	descMaxBacklog  = prometheus.NewDesc("dew_log_backlog_max_bytes", "Unread bytes of the fullest capture file.", nil, nil)
	descFrozen      = prometheus.NewDesc("dew_log_frozen_leaves", "Processes that dewd paused until it has read their output.", nil, nil)
	descFree        = prometheus.NewDesc("dew_log_disk_free_bytes", "Free bytes on the file system of the logs.", nil, nil)
	descAppend      = prometheus.NewDesc("dew_log_append_seconds", "Duration of appends to the logs.", nil, nil)
	descAppendMax   = prometheus.NewDesc("dew_log_append_max_seconds", "Duration of the slowest append since dewd started.", nil, nil)
	descStarts      = prometheus.NewDesc("dew_instance_starts_total", "Instance starts.", nil, nil)
	descCrashes     = prometheus.NewDesc("dew_instance_crashes_total", "Instance crashes, by the cause of the first exit.", []string{"cause"}, nil)
	descVerdicts    = prometheus.NewDesc("dew_crash_verdicts_total", "Instance crashes, by the class of their explanation.", []string{"class"}, nil)
	descRestarts    = prometheus.NewDesc("dew_instance_restarts_total", "Instance starts after a crash, by the cause of the crash.", []string{"cause"}, nil)
	descChecks      = prometheus.NewDesc("dew_health_checks_total", "Health and readiness checks of instances, by outcome: passed, failed, unchecked (could not be run).", []string{"outcome"}, nil)
	descUnavailable = prometheus.NewDesc("dew_containerd_unavailable_total", "Instance starts that were not possible because containerd was unavailable.", nil, nil)
	descSpares      = prometheus.NewDesc("dew_spare_instances", "Containers that dewd keeps ready for the next start of an app.", nil, nil)
	descPanics      = prometheus.NewDesc("dew_slot_panics_total", "Panics in the code that manages an instance.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descTails, descBacklog, descMaxBacklog, descFrozen, descFree, descAppend, descAppendMax,
		descStarts, descCrashes, descVerdicts, descRestarts, descChecks, descUnavailable, descSpares, descPanics,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	l := c.logs.Stats()
	gauge(descTails, float64(l.Tails))
	gauge(descBacklog, float64(l.Backlog))
	gauge(descMaxBacklog, float64(l.MaxBacklog))
	gauge(descFrozen, float64(l.Frozen))
	gauge(descFree, float64(l.Free))
	ch <- prometheus.MustNewConstSummary(descAppend, uint64(max(l.Appends, 0)), l.AppendTime.Seconds(), nil)
	gauge(descAppendMax, l.AppendMax.Seconds())
	if c.stats == nil {
		return
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	st := c.stats()
	counter(descStarts, st.Starts)
	counter(descUnavailable, st.Unavailable)
	counter(descPanics, st.Panics)
	gauge(descSpares, float64(st.Spares))
	for cause, n := range st.Crashes {
		counter(descCrashes, n, string(cause))
	}
	for class, n := range st.Verdicts {
		counter(descVerdicts, n, string(class))
	}
	for cause, n := range st.Restarts {
		counter(descRestarts, n, string(cause))
	}
	for outcome, n := range st.Checks {
		counter(descChecks, n, string(outcome))
	}
}
