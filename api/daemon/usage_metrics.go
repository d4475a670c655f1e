package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/usage"
)

// WatchUsage adds the usage of the running instances. It is read only when a client
// requests /metrics.
func (m *Metrics) WatchUsage(read func(ctx context.Context) map[runtime.InstanceID]*usage.Usage, reg *registry.Registry, log *slog.Logger) {
	m.registry.MustRegister(&usageCollector{read: read, registry: reg, log: log})
}

// usageCollector reads the usage of the running instances.
type usageCollector struct {
	read     func(ctx context.Context) map[runtime.InstanceID]*usage.Usage
	registry *registry.Registry
	log      *slog.Logger
}

var (
	instanceLabels = []string{"app", "space", "org", "type", "index"}
	processLabels  = []string{"app", "space", "org", "type", "index", "process"}

	descMemory    = prometheus.NewDesc("dew_process_memory_bytes", "Memory of a process or sidecar, without memory that the kernel can reclaim.", processLabels, nil)
	descLimit     = prometheus.NewDesc("dew_process_memory_limit_bytes", "Memory limit of a process or sidecar. Sidecars without a limit are missing.", processLabels, nil)
	descCPU       = prometheus.NewDesc("dew_process_cpu_seconds_total", "CPU time of a process or sidecar since its start.", processLabels, nil)
	descThrottled = prometheus.NewDesc("dew_process_throttled_seconds_total", "Time without CPU because of a CPU limit, since the start of a process or sidecar.", processLabels, nil)
	descRequests  = prometheus.NewDesc("dew_instance_requests_total", "Requests that an instance answered to the router since it started.", instanceLabels, nil)
)

// mainProcess is the label of the main process of an instance.
const mainProcess = "main"

// Describe implements prometheus.Collector.
func (c *usageCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMemory, descLimit, descCPU, descThrottled, descRequests} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *usageCollector) Collect(ch chan<- prometheus.Metric) {
	names, err := c.names()
	if err != nil {
		c.log.Warn("cannot read the names of apps for the metrics", "err", err)
		return
	}
	for labels, u := range newestInstances(c.read(context.Background()), names) { //nolint:forbidigo // a Collector gets no context, and this only reads files of the kernel
		whole := []string{labels.app.app, labels.app.space, labels.app.org, labels.kind, strconv.Itoa(labels.index)}
		ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(u.Traffic.Requests), whole...)
		for _, p := range u.Parts {
			one := append(whole[:len(whole):len(whole)], cmp.Or(p.Sidecar, mainProcess))
			ch <- prometheus.MustNewConstMetric(descMemory, prometheus.GaugeValue, float64(p.Memory), one...)
			if p.Limit > 0 {
				ch <- prometheus.MustNewConstMetric(descLimit, prometheus.GaugeValue, float64(p.Limit), one...)
			}
			ch <- prometheus.MustNewConstMetric(descCPU, prometheus.CounterValue, p.PartUsage.CPU.Seconds(), one...)
			ch <- prometheus.MustNewConstMetric(descThrottled, prometheus.CounterValue, p.Waited.Seconds(), one...)
		}
	}
}

// appNames are the names of an app, its space and its org.
type appNames struct{ app, space, org string }

// instanceKey identifies an instance in the metrics.
type instanceKey struct {
	app   appNames
	kind  string
	index int
}

// newestInstances returns the instances by their labels. During a deployment two
// generations have the same index; the newer one counts, because labels must be unique.
func newestInstances(all map[runtime.InstanceID]*usage.Usage, names map[string]appNames) map[instanceKey]*usage.Usage {
	out := make(map[instanceKey]*usage.Usage, len(all))
	for _, u := range all {
		n, known := names[u.App]
		if !known {
			continue // deleted
		}
		k := instanceKey{n, u.Type, u.Slot.Index}
		if old := out[k]; old == nil || old.Slot.Generation < u.Slot.Generation {
			out[k] = u
		}
	}
	return out
}

// names returns the names of all apps by guid.
func (c *usageCollector) names() (map[string]appNames, error) {
	orgs, oerr := c.registry.Orgs()
	spaces, serr := c.registry.Spaces()
	apps, aerr := c.registry.Apps()
	if err := errors.Join(oerr, serr, aerr); err != nil {
		return nil, err
	}
	orgNames, places := map[string]string{}, map[string]appNames{}
	for _, o := range orgs {
		orgNames[o.GUID] = o.Name
	}
	for _, sp := range spaces {
		places[sp.GUID] = appNames{space: sp.Name, org: orgNames[sp.Org]}
	}
	out := make(map[string]appNames, len(apps))
	for _, a := range apps {
		n := places[a.Space]
		n.app = a.Name
		out[a.GUID] = n
	}
	return out, nil
}
