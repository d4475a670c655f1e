package services

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
)

// Origin is who chose a URL that dewd connects to.
type Origin string

// Who may have chosen a URL. The empty Origin is that of a URL from before dewd kept
// it: it goes on to work.
const (
	ByAdmin Origin = "admin"
	ByUser  Origin = "user" // dewd connects to it as egress.Policy allows
)

// Restricted tells whether dewd connects to the URL only as egress.Policy allows.
func (o Origin) Restricted() bool { return o == ByUser }

// setURL changes a URL that somebody wants to be different, and who chose it. A user
// who sends the same URL again chose nothing; an administrator who does confirms it.
func setURL(s *string, origin *Origin, to *string, by Origin) {
	if to == nil {
		return
	}
	if *to != *s || by == ByAdmin {
		*origin = by
	}
	*s = *to
}

// bindingOrigin is who chose the URLs that bindings of a broker have: those of a broker that
// any developer may have registered are the developer's.
func (b ServiceBroker) bindingOrigin() Origin {
	if b.SetBy == "" && b.Space != "" {
		return ByUser
	}
	return cmp.Or(b.SetBy, ByAdmin)
}

// StoredURL is a URL that dewd connects to, of unknown origin.
type StoredURL struct {
	Kind string // "service broker", "log drain" or "route service"
	GUID string // of the service broker or service instance
	Name string
	URL  *url.URL // may have secrets in it
}

// StoredURLs returns the URLs that users who are not administrators may have chosen
// before dewd kept who did.
func (m *Marketplace) StoredURLs() (out []StoredURL, err error) {
	add := func(kind, guid, name, text string) {
		u, err := url.Parse(text)
		if text != "" && err == nil {
			out = append(out, StoredURL{Kind: kind, GUID: guid, Name: name, URL: u})
		}
	}
	brokers, err := m.Brokers(BrokerFilter{})
	if err != nil {
		return nil, err
	}
	for _, sb := range brokers {
		if sb.Space != "" && sb.SetBy == "" {
			add("service broker", sb.GUID, sb.Name, sb.URL)
		}
	}
	instances, err := m.Instances(InstanceFilter{Type: UserProvided})
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

// storedByBrokers are the URLs that space-scoped brokers gave bindings.
func (m *Marketplace) storedByBrokers() (out []StoredURL, err error) {
	bs, err := m.Bindings(BindingFilter{})
	if err != nil {
		return nil, err
	}
	for _, bi := range bs {
		text, kind := bi.SyslogDrain, "log drain"
		if bi.Type == RouteBinding {
			text, kind = bi.RouteService, "route service"
		}
		u, err := url.Parse(text)
		if text == "" || bi.SetBy != "" || err != nil {
			continue
		}
		i, err := m.instance(bi.Instance)
		if err != nil || i.Type != Managed {
			continue
		}
		if sb, err := m.brokerOf(i); err != nil || sb.Space == "" {
			continue
		}
		out = append(out, StoredURL{Kind: kind, GUID: i.GUID, Name: i.Name, URL: u})
	}
	slices.SortFunc(out, func(a, b StoredURL) int { return cmp.Compare(a.GUID, b.GUID) })
	return slices.CompactFunc(out, func(a, b StoredURL) bool { return a.GUID == b.GUID && a.Kind == b.Kind && *a.URL == *b.URL }), nil
}

// brokerOf is the broker of a managed instance.
func (tx *tables) brokerOf(i Instance) (ServiceBroker, error) {
	p, err := tx.plan(i.Plan)
	if err != nil {
		return ServiceBroker{}, fmt.Errorf("cannot find the plan of service instance %s: %w", i.GUID, err)
	}
	return tx.broker(p.Broker)
}
