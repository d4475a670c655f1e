package present

import (
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/route"
)

// defaultPort is where a process listens that names no port.
const defaultPort = 8080

func (p *Presenter) ShowDestinations(rt app.Route) v3.Destinations {
	out := v3.Destinations{Destinations: []v3.Destination{}, Links: v3.Links{
		"self":  {Href: p.Links.Href("v3", "routes", rt.GUID, "destinations")},
		"route": {Href: p.Links.Href("v3", "routes", rt.GUID)},
	}}
	for _, d := range rt.Destinations {
		port := d.Port
		if port == 0 {
			port = defaultPort
		}
		out.Destinations = append(out.Destinations, v3.Destination{
			GUID: d.GUID, CreatedAt: v3.At(rt.CreatedAt), UpdatedAt: v3.At(rt.UpdatedAt),
			App:  v3.DestinationApp{GUID: d.App, Process: v3.DestinationProcess{Type: d.ProcessType}},
			Port: port, Protocol: d.Protocol, Pending: p.pending(d),
		})
	}
	return out
}

// pending tells whether a destination waits for a restart. That nobody knows is
// not worth an error: the destination is shown all the same.
func (p *Presenter) pending(d app.Destination) bool {
	if d.Port == 0 {
		return false
	}
	ps, err := p.Platform.Registry.Processes(d.App)
	if err != nil {
		p.Platform.Log.Error("cannot read the processes of an app", "app", d.App, "err", err)
		return false
	}
	for _, process := range ps {
		if process.Type == d.ProcessType {
			return route.Pending(d, p.Platform.Processes.Instances(process.GUID))
		}
	}
	return false
}
