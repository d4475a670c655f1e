package apps

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
)

// part is a process as clients see it. During a deployment, its new instances are a
// separate process, as on Cloud Foundry.
type part struct {
	process app.Process // the desired state
	guid    string
	shares  []share // the instances it should have, oldest first
}

// share is the instances of one generation.
type share struct {
	generation, instances int
	process               app.Process // the desired state of this generation
}

// instances returns the desired number of instances.
func (p part) instances() int {
	n := 0
	for _, sh := range p.shares {
		n += sh.instances
	}
	return n
}

// singlePart returns a process without a deployment as one part.
func singlePart(p app.Process) part {
	return part{process: p, guid: p.GUID, shares: []share{{p.Generation, p.Instances, p}}}
}

// partsOf returns the parts of a process: the old instances, and those that a
// deployment adds.
func (h *Handlers) partsOf(p app.Process, d app.Deployment) ([]part, error) {
	if !d.Active() || d.GUID == "" || p.Type != app.Web {
		return []part{singlePart(p)}, nil
	}
	old := part{process: p, guid: p.GUID}
	fresh := part{process: p, guid: app.GenerationGUID(p.GUID, d.Generation)}
	for _, sh := range append(d.Others, app.Share{Generation: p.Generation, Instances: d.Instances}) {
		_, as, _, err := h.Platform.Registry.DesiredAt(p.GUID, sh.Generation)
		if errors.Is(err, app.ErrNotFound) {
			continue // the deployment has progressed
		}
		if err != nil {
			return nil, err
		}
		to := &old
		if sh.Generation == d.Generation {
			to = &fresh
		}
		to.process.Version = as.Version // the pending version will be started
		to.shares = append(to.shares, share{sh.Generation, sh.Instances, as})
	}
	fresh.process.Instances = fresh.instances()
	return []part{old, fresh}, nil
}

// partOf returns the part that the path names. A generation that is no longer desired
// has no instances.
func (h *Handlers) partOf(r *http.Request) (part, error) {
	p, err := h.processOf(r)
	if err != nil {
		return part{}, err
	}
	d, _, err := h.Platform.Registry.ActiveDeployment(p.App)
	if err != nil {
		return part{}, err
	}
	parts, err := h.partsOf(p, d)
	if err != nil {
		return part{}, err
	}
	guid := r.PathValue("guid")
	_, generation, one := app.SplitGeneration(guid)
	if !one || r.PathValue("type") != "" {
		return parts[0], nil
	}
	for _, pt := range parts {
		for _, sh := range pt.shares {
			if sh.generation == generation {
				pt.guid, pt.shares, pt.process.Instances = guid, []share{sh}, sh.instances
				return pt, nil
			}
		}
	}
	if generation > max(p.Newest, p.Generation) {
		return part{}, rest.NotFound("Process")
	}
	// The generation existed before. A client that listed it a moment ago must not get
	// an error.
	p.Instances = 0
	return part{process: p, guid: guid}, nil
}
