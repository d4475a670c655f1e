package platform

import (
	"maps"
	"slices"

	"github.com/dewrun/dew/app"
)

// RecordMapping records the apps that a route leads to now and did not before,
// and the other way round.
func (w Tx) RecordMapping(old, rt app.Route, marks map[string]any) error {
	before, after := DestinationsByGUID(old), DestinationsByGUID(rt)
	for _, way := range []struct {
		event   string
		in, not map[string]app.Destination
	}{
		{"audit.app.map-route", after, before},
		{"audit.app.unmap-route", before, after},
	} {
		for _, guid := range slices.Sorted(maps.Keys(way.in)) {
			if _, both := way.not[guid]; both {
				continue
			}
			if err := w.recordDestination(way.event, rt, way.in[guid], marks); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w Tx) recordDestination(event string, rt app.Route, d app.Destination, marks map[string]any) error {
	a, err := w.Registry.App(d.App)
	if err != nil {
		return err
	}
	data := map[string]any{
		"route_guid": rt.GUID, "destination_guid": d.GUID, "route_mapping_guid": d.GUID, "process_type": d.ProcessType,
		"app_port": d.Port, "protocol": d.Protocol, "weight": nil,
	}
	if len(rt.Options) > 0 {
		data["route_options"] = rt.Options
	}
	maps.Copy(data, marks)
	return w.Record(event, a, data)
}

func DestinationsByGUID(rt app.Route) map[string]app.Destination {
	out := make(map[string]app.Destination, len(rt.Destinations))
	for _, d := range rt.Destinations {
		out[d.GUID] = d
	}
	return out
}
