package services

import (
	"encoding/json"
	"time"

	"github.com/dewrun/dew/app"
)

// LastOperation is the newest thing that was done to a record, as users see it.
type LastOperation struct {
	Type        Action    `json:"type"`
	State       State     `json:"state"`
	Description string    `json:"description,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// Is tells whether the last operation is of a type and in a state.
func (l LastOperation) Is(a Action, s State) bool { return l.Type == a && l.State == s }

// Busy tells whether the operation has not ended.
func (l LastOperation) Busy() bool { return l.State == Initial || l.State == InProgress }

// BrokerState is whether the catalog of a broker is known.
type BrokerState string

// The states of a broker.
const (
	Synchronizing         BrokerState = "synchronization in progress"
	Available             BrokerState = "available"
	SynchronizationFailed BrokerState = "synchronization failed"
	Deleting              BrokerState = "delete in progress"
)

// BuiltinBroker is the name and the guid of the broker that is always there.
const BuiltinBroker = "dew"

// ServiceBroker is who gives service instances.
type ServiceBroker struct {
	GUID      string       `json:"guid"`
	Name      string       `json:"name"`
	URL       string       `json:"url,omitempty"` // empty: the built-in one
	Username  string       `json:"username,omitempty"`
	Password  string       `json:"password,omitempty"`
	SkipTLS   bool         `json:"skip_tls,omitempty"` // its certificate is not checked
	Space     string       `json:"space,omitempty"`    // guid; empty: for all
	SetBy     Origin       `json:"url_set_by,omitempty"`
	State     BrokerState  `json:"state"`
	Metadata  app.Metadata `json:"metadata,omitzero"`
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
}

// Builtin tells whether it is the broker that is always there.
func (b ServiceBroker) Builtin() bool { return b.GUID == BuiltinBroker }

// Offering is a service that a broker has.
type Offering struct {
	GUID                 string          `json:"guid"`
	Broker               string          `json:"broker"` // guid
	ID                   string          `json:"id"`     // the broker's own
	Name                 string          `json:"name"`   // the label in VCAP_SERVICES
	Description          string          `json:"description"`
	Tags                 []string        `json:"tags,omitempty"`
	Requires             []string        `json:"requires,omitempty"`
	Bindable             bool            `json:"bindable,omitempty"`
	PlanUpdateable       bool            `json:"plan_updateable,omitempty"`
	InstancesRetrievable bool            `json:"instances_retrievable,omitempty"`
	BindingsRetrievable  bool            `json:"bindings_retrievable,omitempty"`
	AllowContextUpdates  bool            `json:"allow_context_updates,omitempty"`
	Shareable            bool            `json:"shareable,omitempty"`
	DocumentationURL     string          `json:"documentation_url,omitempty"`
	Catalog              json.RawMessage `json:"catalog,omitempty"` // its metadata in the broker's catalog, an object
	Active               bool            `json:"active,omitempty"`  // still in the catalog
	Metadata             app.Metadata    `json:"metadata,omitzero"`
	CreatedAt            time.Time       `json:"created_at"`
	UpdatedAt            time.Time       `json:"updated_at"`
}

// Plan is one way to have an offering.
type Plan struct {
	GUID           string          `json:"guid"`
	Broker         string          `json:"broker"`   // guid
	Offering       string          `json:"offering"` // guid
	ID             string          `json:"id"`       // the broker's own
	Name           string          `json:"name"`
	Description    string          `json:"description"`
	Free           bool            `json:"free,omitempty"`
	Bindable       bool            `json:"bindable,omitempty"`
	PlanUpdateable bool            `json:"plan_updateable,omitempty"`
	Costs          []Cost          `json:"costs,omitempty"`
	Catalog        json.RawMessage `json:"catalog,omitempty"` // its metadata in the broker's catalog, an object
	MaxPolling     time.Duration   `json:"max_polling,omitempty"`
	Maintenance    Maintenance     `json:"maintenance,omitzero"`
	Schemas        Schemas         `json:"schemas,omitzero"`
	Visibility     Visibility      `json:"visibility"`
	Active         bool            `json:"active,omitempty"` // still in the catalog
	Metadata       app.Metadata    `json:"metadata,omitzero"`
	CreatedAt      time.Time       `json:"created_at"`
	UpdatedAt      time.Time       `json:"updated_at"`
}

// Cost is one price of a plan.
type Cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
	Unit     string  `json:"unit"`
}

// VisibilityType is who may have a plan.
type VisibilityType string

// Who may have a plan.
const (
	Public       VisibilityType = "public"
	Admin        VisibilityType = "admin"        // nobody but administrators
	Organization VisibilityType = "organization" // some orgs
	SpaceOnly    VisibilityType = "space"        // the space of its broker
)

// Visibility is who may have a plan.
type Visibility struct {
	Type  VisibilityType `json:"type"`
	Orgs  []string       `json:"orgs,omitempty"`  // guids, with Organization
	Space string         `json:"space,omitempty"` // guid, with SpaceOnly
}

// InstanceType is who made a service instance.
type InstanceType string

// Who made a service instance.
const (
	Managed      InstanceType = "managed" // a broker
	UserProvided InstanceType = "user-provided"
)

// Instance is a service that somebody has.
type Instance struct {
	GUID         string          `json:"guid"`
	Type         InstanceType    `json:"type"`
	Name         string          `json:"name"`
	Space        string          `json:"space"`          // guid
	Plan         string          `json:"plan,omitempty"` // guid, of a managed one
	Tags         []string        `json:"tags,omitempty"`
	Dashboard    string          `json:"dashboard,omitempty"`
	Maintenance  string          `json:"maintenance,omitempty"`   // the version that it has
	Credentials  json.RawMessage `json:"credentials,omitempty"`   // of a user-provided one, an object
	SyslogDrain  string          `json:"syslog_drain,omitempty"`  // of a user-provided one
	RouteService string          `json:"route_service,omitempty"` // of a user-provided one
	DrainSetBy   Origin          `json:"syslog_drain_set_by,omitempty"`
	RouteSetBy   Origin          `json:"route_service_set_by,omitempty"`
	SharedWith   []string        `json:"shared_with,omitempty"` // guids of further spaces
	Last         LastOperation   `json:"last"`
	Metadata     app.Metadata    `json:"metadata,omitzero"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
}

// BindingType is what a service instance is bound to.
type BindingType string

// What a service instance may be bound to.
const (
	AppBinding   BindingType = "app"
	KeyBinding   BindingType = "key"   // nothing: credentials for people
	RouteBinding BindingType = "route" // its requests go through the service
)

// Binding is the right to use a service instance, with the credentials for it.
type Binding struct {
	GUID         string          `json:"guid"`
	Type         BindingType     `json:"type"`
	Name         string          `json:"name,omitempty"`
	Instance     string          `json:"instance"`        // guid
	App          string          `json:"app,omitempty"`   // guid, of an app binding
	Route        string          `json:"route,omitempty"` // guid, of a route binding
	Credentials  json.RawMessage `json:"credentials,omitempty"`
	SyslogDrain  string          `json:"syslog_drain,omitempty"`
	RouteService string          `json:"route_service,omitempty"`
	SetBy        Origin          `json:"url_set_by,omitempty"` // of the drain or the route service
	VolumeMounts json.RawMessage `json:"volume_mounts,omitempty"`
	Last         LastOperation   `json:"last"`
	Metadata     app.Metadata    `json:"metadata,omitzero"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
}

// Usable tells whether the binding works: it was made, and nobody takes it away.
func (b Binding) Usable() bool {
	return b.Last.Type != Delete && !b.Last.Busy() && !b.Last.Is(Create, Failed)
}

// Kind is what an operation is about.
type Kind string

// What an operation may be about.
const (
	OfInstance Kind = "service_instance"
	OfBinding  Kind = "service_binding"
	OfBroker   Kind = "service_broker"
)

// Operation is something that was asked for and takes longer than the answer. It
// is kept for a day after its end. It has no secrets.
type Operation struct {
	GUID        string      `json:"guid"`
	Kind        Kind        `json:"kind"`
	Binding     BindingType `json:"binding,omitempty"` // of Kind OfBinding
	Record      string      `json:"record"`            // guid of the instance, binding or broker
	Action      Action      `json:"action"`
	State       State       `json:"state"`
	Accepted    bool        `json:"accepted,omitempty"` // the broker has taken it and works on it: POLLING, as the platform says
	Description string      `json:"description,omitempty"`
	Warnings    []string    `json:"warnings,omitempty"`
	Failure     *Refused    `json:"failure,omitempty"` // why it failed, in the platform's words
	By          app.Actor   `json:"by,omitzero"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
}

// Ended tells whether there is nothing more to wait for.
func (o Operation) Ended() bool { return o.State == Succeeded || o.State == Failed }

// Frozen is what services an app sees.
type Frozen struct {
	JSON  string   // the value of VCAP_SERVICES; empty: nothing is bound
	Names []string // of the service instances, sorted
}
