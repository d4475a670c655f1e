package logs

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime/usage"
)

// The container metrics of Cloud Foundry.
const (
	metricCPU         = "cpu"
	metricEntitlement = "cpu_entitlement"
	metricMemory      = "memory"
	metricMemoryQuota = "memory_quota"
	metricDisk        = "disk"
	metricDiskQuota   = "disk_quota"
	metricLogRate     = "log_rate"
	metricLogLimit    = "log_rate_limit"
)

const (
	unitPercent = "percentage"
	unitBytes   = "bytes"
	unitRate    = "B/s"
)

// quotas returns the limits of a process.
func quotas(p app.Process) (memory, disk, logRate float64) {
	const mb = 1 << 20
	logRate = -1
	if p.LogRate != nil {
		logRate = float64(*p.LogRate)
	}
	return float64(p.MemoryMB) * mb, float64(p.DiskMB) * mb, logRate
}

// gauges returns an event with the container metrics of the selected apps.
func (s *gatewayStream) gauges(ctx context.Context) ([]byte, error) {
	if !s.q.gauge || s.h.Usage == nil {
		return nil, nil
	}
	apps, err := s.apps()
	if err != nil {
		return nil, err
	}
	byApp := map[string][]*usage.Usage{}
	for _, u := range s.h.Usage.Once(ctx) {
		byApp[u.App] = append(byApp[u.App], u)
	}
	var out []byte
	b, n := []byte(gatewayHead), 0
	for _, a := range apps {
		envelopes, err := s.gaugesOf(a, byApp[a.GUID])
		if err != nil {
			return nil, err
		}
		for _, e := range envelopes {
			b = separate(b, &n)
			if b, err = appendJSON(b, e); err != nil {
				return nil, err
			}
			if n == gatewayBatch {
				out = append(append(out, b...), gatewayTail...)
				b, n = []byte(gatewayHead), 0
			}
		}
	}
	if n > 0 {
		out = append(append(out, b...), gatewayTail...)
	}
	return out, nil
}

// gaugesOf returns the container metrics of the instances of an app that the query
// selects.
func (s *gatewayStream) gaugesOf(a app.App, all []*usage.Usage) (out []v3.GatewayEnvelope, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	form, err := s.h.EnvelopeForm(a)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y *usage.Usage) int {
		return cmp.Or(strings.Compare(x.Type, y.Type), cmp.Compare(x.Slot.Index, y.Slot.Index), cmp.Compare(x.Slot.Generation, y.Slot.Generation))
	})
	now := time.Now().UnixNano()
	for _, u := range all {
		p, ok := form.processes[strings.ToUpper(u.Type)]
		if !ok || !s.member.takes(a.GUID, uint64(u.Slot.Index)) {
			continue
		}
		for _, metrics := range metricsOf(p, u) {
			if !s.q.wants(metrics) {
				continue
			}
			e := gatewayEnvelope(form.Present(logstream.Source{Type: "APP/PROC/" + strings.ToUpper(u.Type), Index: u.Slot.Index}))
			delete(e.Tags, "source_type")
			e.Timestamp, e.Log, e.Gauge = now, nil, &v3.Gauge{Metrics: metrics}
			out = append(out, e)
		}
	}
	return out, nil
}

// metricsOf returns the metrics of an instance, as two gauges like on Cloud Foundry.
func metricsOf(p app.Process, u *usage.Usage) []map[string]v3.GaugeValue {
	memory, disk, limit := quotas(p)
	container := map[string]v3.GaugeValue{
		metricCPU:         {Unit: unitPercent, Value: u.CPU * 100},
		metricMemory:      {Unit: unitBytes, Value: float64(u.Memory)},
		metricMemoryQuota: {Unit: unitBytes, Value: memory},
		metricDisk:        {Unit: unitBytes, Value: float64(u.Disk)},
		metricDiskQuota:   {Unit: unitBytes, Value: disk},
	}
	if u.Entitled > 0 {
		container[metricEntitlement] = v3.GaugeValue{Unit: unitPercent, Value: u.CPU / u.Entitled * 100}
	}
	return []map[string]v3.GaugeValue{container, {
		metricLogRate:  {Unit: unitRate, Value: float64(u.LogRate)},
		metricLogLimit: {Unit: unitRate, Value: limit},
	}}
}
