package registry

import "github.com/dewrun/dew/app"

// ManifestOf is the manifest that describes an app as it is wished now. Applying
// it changes nothing.
func (r *Registry) ManifestOf(guid string) (m app.Manifest, err error) {
	err = r.view(func(r *Registry) error {
		a, err := r.App(guid)
		if err != nil {
			return err
		}
		w, err := r.wishOf(a.Space, a.Name)
		if err != nil {
			return err
		}
		described := w.Described()
		if described.Routes, err = r.describedRoutes(guid); err != nil {
			return err
		}
		described.NoRoute = len(described.Routes) == 0
		m.Applications = []app.ManifestApp{described}
		return nil
	})
	return m, err
}

func (r *Registry) describedRoutes(appGUID string) (out []app.ManifestRoute, err error) {
	routes, err := r.RoutesOf(appGUID)
	if err != nil {
		return nil, err
	}
	for _, rt := range routes {
		d, err := r.Domain(rt.Domain)
		if err != nil {
			return nil, err
		}
		out = append(out, app.ManifestRoute{Route: rt.URL(d.Name), Protocol: rt.ProtocolTo(appGUID), Options: rt.Options})
	}
	return out, nil
}
