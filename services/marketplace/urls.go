package marketplace

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"github.com/dewrun/dew/services"
)

// StoredURLs returns the URLs that users other than administrators may have set before
// dewd recorded origins.
func (m *Marketplace) StoredURLs() (out []services.StoredURL, err error) {
	add := func(kind, guid, name, text string) {
		u, err := url.Parse(text)
		if text != "" && err == nil {
			out = append(out, services.StoredURL{Kind: kind, GUID: guid, Name: name, URL: u})
		}
	}
	brokers, err := m.Brokers(services.BrokerFilter{})
	if err != nil {
		return nil, err
	}
	for _, sb := range brokers {
		if sb.Space != "" && sb.SetBy == "" {
			add("service broker", sb.GUID, sb.Name, sb.URL)
		}
	}
	instances, err := m.Instances(services.InstanceFilter{Type: services.UserProvided})
	if err != nil {
		return nil, err
	}
	for _, i := range instances {
		if i.DrainSetBy == "" {
			add("log drain", i.GUID, i.Name, i.SyslogDrain)
		}
		if i.RouteSetBy == "" {
			add("route service", i.GUID, i.Name, i.RouteService)
		}
	}
	managed, err := m.storedByBrokers()
	return append(out, managed...), err
}

// storedByBrokers returns the URLs that bindings got from space-scoped brokers.
func (m *Marketplace) storedByBrokers() (out []services.StoredURL, err error) {
	bs, err := m.Bindings(services.BindingFilter{})
	if err != nil {
		return nil, err
	}
	for _, bi := range bs {
		text, kind := bi.SyslogDrain, "log drain"
		if bi.Type == services.RouteBinding {
			text, kind = bi.RouteService, "route service"
		}
		u, err := url.Parse(text)
		if text == "" || bi.SetBy != "" || err != nil {
			continue
		}
		i, err := m.instance(bi.Instance)
		if err != nil || i.Type != services.Managed {
			continue
		}
		if sb, err := m.brokerOf(i); err != nil || sb.Space == "" {
			continue
		}
		out = append(out, services.StoredURL{Kind: kind, GUID: i.GUID, Name: i.Name, URL: u})
	}
	slices.SortFunc(out, func(a, b services.StoredURL) int { return cmp.Compare(a.GUID, b.GUID) })
	return slices.CompactFunc(out, func(a, b services.StoredURL) bool { return a.GUID == b.GUID && a.Kind == b.Kind && *a.URL == *b.URL }), nil
}

// brokerOf returns the broker of a managed instance.
func (tx *tables) brokerOf(i services.Instance) (services.ServiceBroker, error) {
	p, err := tx.plan(i.Plan)
	if err != nil {
		return services.ServiceBroker{}, fmt.Errorf("cannot find the plan of service instance %s: %w", i.GUID, err)
	}
	return tx.broker(p.Broker)
}

// bindingOrigin returns the origin of the URLs in a broker's bindings. Any developer
// may have registered a space-scoped broker, so its URLs count as a user's.
func bindingOrigin(b services.ServiceBroker) services.Origin {
	if b.SetBy == "" && b.Space != "" {
		return services.ByUser
	}
	return cmp.Or(b.SetBy, services.ByAdmin)
}
