package services

import (
	"encoding/json"
	"net/url"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/drain"
)

// NewBinding describes a binding to create.
type NewBinding struct {
	Type       BindingType
	Name       string // of a key; optional for an app binding
	Instance   string // guid
	App        string // guid, of an app binding
	Route      string // guid, of a route binding
	Parameters json.RawMessage
	Multiple   bool // the app can have several bindings to the instance
	Metadata   app.Metadata
	By         app.Actor
}

// BindingFilter selects bindings. An empty list selects all.
type BindingFilter struct {
	GUIDs, Names             []string
	Types                    []BindingType
	Apps, AppNames           []string // guids, names
	Instances, InstanceNames []string
	Routes                   []string // guids
	Plans, PlanNames         []string
	Offerings, OfferingNames []string
	Labels                   app.Selector
}

// Drain is a log drain of an app.
type Drain struct {
	App  string // guid
	URL  string // can contain secrets
	Name string // of the service instance
	// Restricted says that no administrator set the URL; see egress.Policy.
	Restricted bool
	TLS        drain.TLS // from the credentials of the binding
}

// DrainTLS returns the certificates of a log drain in the credentials of a binding.
func DrainTLS(credentials json.RawMessage) drain.TLS { return drain.ReadTLS(credentials) }

// RouteService is a service that handles the requests of a route.
type RouteService struct {
	URL string
	// Restricted says that no administrator set the URL; see egress.Policy.
	Restricted bool
}

// InstanceChange describes an update of an instance. Nil fields do not change.
type InstanceChange struct {
	Name        *string
	Tags        *[]string
	Plan        *string // guid
	Parameters  json.RawMessage
	Maintenance *string // the version to upgrade to
	// For user-provided instances only.
	Credentials  json.RawMessage
	SyslogDrain  *string
	RouteService *string
	SetBy        Origin // the origin of the URLs
	Metadata     app.MetadataChange
	By           app.Actor
}

// OnlyMetadata reports whether the update changes only metadata.
func (c InstanceChange) OnlyMetadata() bool {
	return c.Name == nil && c.Tags == nil && c.Plan == nil && c.Parameters == nil && c.Maintenance == nil &&
		c.Credentials == nil && c.SyslogDrain == nil && c.RouteService == nil
}

// NewInstance describes a service instance to create.
type NewInstance struct {
	Type       InstanceType
	Name       string
	Space      string // guid
	Plan       string // guid, of a managed instance
	Parameters json.RawMessage
	Tags       []string
	// The following fields, except metadata, are for user-provided instances.
	Credentials  json.RawMessage
	SyslogDrain  string
	RouteService string
	SetBy        Origin // the origin of the syslog drain and the route service
	Metadata     app.Metadata
	By           app.Actor
}

// InstanceFilter selects instances. An empty list selects all.
type InstanceFilter struct {
	GUIDs, Names     []string
	Type             InstanceType // empty: both
	Spaces, Orgs     []string     // guids; include spaces that the instance is shared with
	Plans, PlanNames []string
	Labels           app.Selector
}

// Viewer is the user who lists the marketplace. Plans that the user cannot use are
// hidden.
type Viewer struct {
	Orgs, Spaces []string // guids of the user's orgs and spaces
}

// Sees reports whether the viewer can see a plan.
func (v *Viewer) Sees(p Plan) bool {
	if v == nil || p.Visibility.Type == Public {
		return true
	}
	return slices.ContainsFunc(v.Orgs, func(o string) bool { return p.Visibility.In(o, "") }) ||
		slices.ContainsFunc(v.Spaces, func(s string) bool { return p.Visibility.In("", s) })
}

// OfferingFilter selects offerings. An empty list selects all.
type OfferingFilter struct {
	GUIDs, Names, IDs    []string
	Brokers, BrokerNames []string
	Orgs, Spaces         []string // guids of orgs and spaces where it is available
	Available            *bool
	Viewer               *Viewer // nil: can see all
	Labels               app.Selector
}

// PlanFilter selects plans. An empty list selects all.
type PlanFilter struct {
	GUIDs, Names, IDs        []string
	Offerings, OfferingNames []string // guids, names
	Brokers, BrokerNames     []string
	Instances                []string // guids of instances that have the plan
	Orgs, Spaces             []string // guids of orgs and spaces where the plan is available
	Available                *bool
	Viewer                   *Viewer // nil: can see all
	Labels                   app.Selector
}

// StoredURL is a URL that dewd connects to, of unknown origin.
type StoredURL struct {
	Kind string // "service broker", "log drain" or "route service"
	GUID string // of the service broker or service instance
	Name string
	URL  *url.URL // can contain secrets
}

// NewBroker describes a broker to register.
type NewBroker struct {
	Name, URL          string
	Username, Password string
	SkipTLS            bool
	Space              string // guid; empty: available in all spaces
	SetBy              Origin // the origin of the URL
	Metadata           app.Metadata
	By                 app.Actor
}

// BrokerChange describes an update of a broker. Nil fields do not change.
type BrokerChange struct {
	Name, URL          *string
	Username, Password *string
	SetBy              Origin // the origin of the URL
	Metadata           app.MetadataChange
	By                 app.Actor
}

// BrokerFilter selects brokers. An empty list selects all.
type BrokerFilter struct {
	GUIDs, Names []string
	Spaces       []string // guids, of space-scoped brokers
	Labels       app.Selector
}

// Usage is the number of apps in a space that are bound to an instance shared with it.
type Usage struct {
	Space string // guid
	Apps  int
}
