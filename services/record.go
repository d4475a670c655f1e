package services

import (
	"encoding/json"
	"time"

	"github.com/dewrun/dew/app"
)

// LastOperation is the latest operation on a record, as users see it.
type LastOperation struct {
	Type        Action    `json:"type"`
	State       State     `json:"state"`
	Description string    `json:"description,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// Is reports whether the last operation has this type and state.
func (l LastOperation) Is(a Action, s State) bool { return l.Type == a && l.State == s }

// Busy reports whether the operation is still in progress.
func (l LastOperation) Busy() bool { return l.State == Initial || l.State == InProgress }

// BrokerState says whether dewd has the catalog of a broker.
type BrokerState string

// The states of a broker.
const (
	Synchronizing         BrokerState = "synchronization in progress"
	Available             BrokerState = "available"
	SynchronizationFailed BrokerState = "synchronization failed"
	Deleting              BrokerState = "delete in progress"
)

// BuiltinBroker is the name and the guid of the built-in broker.
const BuiltinBroker = "dew"

// ServiceBroker is a registered provider of service instances.
type ServiceBroker struct {
	GUID      string       `json:"guid"`
	Name      string       `json:"name"`
	URL       string       `json:"url,omitempty"` // empty for the built-in broker
	Username  string       `json:"username,omitempty"`
	Password  string       `json:"password,omitempty"`
	SkipTLS   bool         `json:"skip_tls,omitempty"` // do not verify its certificate
	Space     string       `json:"space,omitempty"`    // guid; empty: available in all spaces
	SetBy     Origin       `json:"url_set_by,omitempty"`
	State     BrokerState  `json:"state"`
	Metadata  app.Metadata `json:"metadata,omitzero"`
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
}

// Builtin reports whether b is the built-in broker.
func (b ServiceBroker) Builtin() bool { return b.GUID == BuiltinBroker }

// Offering is a service that a broker offers.
type Offering struct {
	GUID                 string          `json:"guid"`
	Broker               string          `json:"broker"` // guid
	ID                   string          `json:"id"`     // in the broker's catalog
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

// Plan is a variant of an offering, such as a size.
type Plan struct {
	GUID           string          `json:"guid"`
	Broker         string          `json:"broker"`   // guid
	Offering       string          `json:"offering"` // guid
	ID             string          `json:"id"`       // in the broker's catalog
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

// VisibilityType says which users can use a plan.
type VisibilityType string

// The types of visibility.
const (
	Public       VisibilityType = "public"
	Admin        VisibilityType = "admin"        // administrators only
	Organization VisibilityType = "organization" // some orgs
	SpaceOnly    VisibilityType = "space"        // the space of its broker
)

// Visibility says which users can use a plan.
type Visibility struct {
	Type  VisibilityType `json:"type"`
	Orgs  []string       `json:"orgs,omitempty"`  // guids, with Organization
	Space string         `json:"space,omitempty"` // guid, with SpaceOnly
}

// InstanceType says whether a broker or a user provides a service instance.
type InstanceType string

// The types of service instances.
const (
	Managed      InstanceType = "managed" // created by a broker
	UserProvided InstanceType = "user-provided"
)

// Instance is a service instance.
type Instance struct {
	GUID         string          `json:"guid"`
	Type         InstanceType    `json:"type"`
	Name         string          `json:"name"`
	Space        string          `json:"space"`          // guid
	Plan         string          `json:"plan,omitempty"` // guid, of a managed instance
	Tags         []string        `json:"tags,omitempty"`
	Dashboard    string          `json:"dashboard,omitempty"`
	Maintenance  string          `json:"maintenance,omitempty"`   // its maintenance version
	Credentials  json.RawMessage `json:"credentials,omitempty"`   // of a user-provided instance, an object
	SyslogDrain  string          `json:"syslog_drain,omitempty"`  // of a user-provided instance
	RouteService string          `json:"route_service,omitempty"` // of a user-provided instance
	DrainSetBy   Origin          `json:"syslog_drain_set_by,omitempty"`
	RouteSetBy   Origin          `json:"route_service_set_by,omitempty"`
	SharedWith   []string        `json:"shared_with,omitempty"` // guids of other spaces
	Last         LastOperation   `json:"last"`
	Metadata     app.Metadata    `json:"metadata,omitzero"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
}

// BindingType says what a service instance is bound to.
type BindingType string

// The types of bindings.
const (
	AppBinding   BindingType = "app"
	KeyBinding   BindingType = "key"   // bound to nothing: credentials for users
	RouteBinding BindingType = "route" // the service handles the requests of the route
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
	SetBy        Origin          `json:"url_set_by,omitempty"` // for the URL of the log drain or route service
	VolumeMounts json.RawMessage `json:"volume_mounts,omitempty"`
	Last         LastOperation   `json:"last"`
	Metadata     app.Metadata    `json:"metadata,omitzero"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
}

// Usable reports whether the binding works: it was created and is not being deleted.
func (b Binding) Usable() bool {
	return b.Last.Type != Delete && !b.Last.Busy() && !b.Last.Is(Create, Failed)
}

// Kind is the type of the record that an operation changes.
type Kind string

// The kinds of operations.
const (
	OfInstance Kind = "service_instance"
	OfBinding  Kind = "service_binding"
	OfBroker   Kind = "service_broker"
)

// Operation is an asynchronous operation. It is stored until a day after it finished.
// It contains no secrets.
type Operation struct {
	GUID        string      `json:"guid"`
	Kind        Kind        `json:"kind"`
	Binding     BindingType `json:"binding,omitempty"` // for Kind OfBinding
	Record      string      `json:"record"`            // guid of the instance, binding or broker
	Action      Action      `json:"action"`
	State       State       `json:"state"`
	Accepted    bool        `json:"accepted,omitempty"` // the broker accepted it and works on it (Cloud Foundry's job state POLLING)
	Description string      `json:"description,omitempty"`
	Warnings    []string    `json:"warnings,omitempty"`
	Failure     *Refused    `json:"failure,omitempty"` // the reason if it failed, as Cloud Foundry reports it
	By          app.Actor   `json:"by,omitzero"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
}

// Ended reports whether the operation succeeded or failed.
func (o Operation) Ended() bool { return o.State == Succeeded || o.State == Failed }

// AppServices is the service data that an app receives.
type AppServices struct {
	JSON  string   // the value of VCAP_SERVICES; empty if the app has no bindings
	Names []string // of the service instances, sorted
}
