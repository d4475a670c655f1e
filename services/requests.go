package services

import (
	"encoding/json"
	"net/url"
	"slices"

	"github.com/dewrun/dew/app"
)

// NewBinding describes a binding to create.
type NewBinding struct {
	Type       BindingType
	Name       string // of a key; may be empty for an app binding
	Instance   string // guid
	App        string // guid, of an app binding
	Route      string // guid, of a route binding
	Parameters json.RawMessage
	Multiple   bool // the app may have further bindings to the same instance
	Metadata   app.Metadata
	By         app.Actor
}

// BindingFilter chooses bindings. An empty list chooses all.
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

// Drain is where the lines of an app are to be sent as well.
type Drain struct {
	App  string // guid
	URL  string // may have secrets in it
	Name string // of the service instance
	// Restricted says that the URL is not an administrator's; see egress.Policy.
	Restricted bool
}

// RouteService is what the requests of a route go through.
type RouteService struct {
	URL string
	// Restricted says that the URL is not an administrator's; see egress.Policy.
	Restricted bool
}

// InstanceChange describes an update of an instance. Nil fields stay as they are.
type InstanceChange struct {
	Name        *string
	Tags        *[]string
	Plan        *string // guid
	Parameters  json.RawMessage
	Maintenance *string // the version to upgrade to
	// For user-provided ones.
	Credentials  json.RawMessage
	SyslogDrain  *string
	RouteService *string
	SetBy        Origin // who chose them
	Metadata     app.MetadataChange
	By           app.Actor
}

// OnlyMetadata tells whether nothing but metadata changes.
func (c InstanceChange) OnlyMetadata() bool {
	return c.Name == nil && c.Tags == nil && c.Plan == nil && c.Parameters == nil && c.Maintenance == nil &&
		c.Credentials == nil && c.SyslogDrain == nil && c.RouteService == nil
}

// NewInstance describes a service instance to create.
type NewInstance struct {
	Type       InstanceType
	Name       string
	Space      string // guid
	Plan       string // guid, of a managed one
	Parameters json.RawMessage
	Tags       []string
	// The rest but metadata is for user-provided ones.
	Credentials  json.RawMessage
	SyslogDrain  string
	RouteService string
	SetBy        Origin // who chose the syslog drain and the route service
	Metadata     app.Metadata
	By           app.Actor
}

// InstanceFilter chooses instances. An empty list chooses all.
type InstanceFilter struct {
	GUIDs, Names     []string
	Type             InstanceType // empty: both
	Spaces, Orgs     []string     // guids; also of spaces that it is shared with
	Plans, PlanNames []string
	Labels           app.Selector
}

// Viewer is who looks at the marketplace: plans that are none of theirs are not
// there for them.
type Viewer struct {
	Orgs, Spaces []string // guids of where they are
}

// Sees tells whether a plan is there for the viewer.
func (v *Viewer) Sees(p Plan) bool {
	if v == nil || p.Visibility.Type == Public {
		return true
	}
	return slices.ContainsFunc(v.Orgs, func(o string) bool { return p.Visibility.In(o, "") }) ||
		slices.ContainsFunc(v.Spaces, func(s string) bool { return p.Visibility.In("", s) })
}

// OfferingFilter chooses offerings. An empty list chooses all.
type OfferingFilter struct {
	GUIDs, Names, IDs    []string
	Brokers, BrokerNames []string
	Orgs, Spaces         []string // guids of where it can be had
	Available            *bool
	Viewer               *Viewer // nil: sees all
	Labels               app.Selector
}

// PlanFilter chooses plans. An empty list chooses all.
type PlanFilter struct {
	GUIDs, Names, IDs        []string
	Offerings, OfferingNames []string // guids, names
	Brokers, BrokerNames     []string
	Instances                []string // guids of instances that have the plan
	Orgs, Spaces             []string // guids of where the plan can be had
	Available                *bool
	Viewer                   *Viewer // nil: sees all
	Labels                   app.Selector
}

// StoredURL is a URL that dewd connects to, of unknown origin.
type StoredURL struct {
	Kind string // "service broker", "log drain" or "route service"
	GUID string // of the service broker or service instance
	Name string
	URL  *url.URL // may have secrets in it
}

// NewBroker describes a broker to register.
type NewBroker struct {
	Name, URL          string
	Username, Password string
	SkipTLS            bool
	Space              string // guid; empty: for all
	SetBy              Origin // who chose the URL
	Metadata           app.Metadata
	By                 app.Actor
}

// BrokerChange describes an update of a broker. Nil fields stay as they are.
type BrokerChange struct {
	Name, URL          *string
	Username, Password *string
	SetBy              Origin // who chose the URL
	Metadata           app.MetadataChange
	By                 app.Actor
}

// BrokerFilter chooses brokers. An empty list chooses all.
type BrokerFilter struct {
	GUIDs, Names []string
	Spaces       []string // guids, of space-scoped ones
	Labels       app.Selector
}

// Usage is how many apps of a space that an instance is shared with are bound to it.
type Usage struct {
	Space string // guid
	Apps  int
}
