package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dewrun/dew/app"
)

// Broker provides service instances and bindings. Package services/osb implements it
// for the Open Service Broker API 2.17, services/builtin for the built-in services.
// Every method can be called again for the same guid: it then continues the operation
// or returns its result.
type Broker interface {
	// Catalog returns the offerings of the broker.
	Catalog(ctx context.Context) ([]CatalogOffering, error)
	// Instance creates, updates or deletes a service instance, depending on r.Action.
	Instance(ctx context.Context, r InstanceRequest) (Progress, error)
	// Binding creates or deletes a binding, depending on r.Action.
	Binding(ctx context.Context, r BindingRequest) (Progress, error)
	// LastOperation returns the progress of an operation that an earlier call left in
	// progress.
	LastOperation(ctx context.Context, r LastOperationRequest) (Progress, error)
	// FetchBinding returns a binding that was created asynchronously, or whose
	// parameters are requested.
	FetchBinding(ctx context.Context, r BindingRequest) (BindingData, error)
}

// InstanceFetcher is a Broker that can return its data of an instance. Only offerings
// with InstancesRetrievable support it.
type InstanceFetcher interface {
	FetchInstance(ctx context.Context, r InstanceRequest) (FetchedInstance, error)
}

// FetchedInstance is a broker's data of an instance.
type FetchedInstance struct {
	Dashboard  string
	Parameters json.RawMessage
}

// Action is the kind of operation that a broker is requested to run.
type Action string

// The actions of a broker.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
)

// State is the state of an operation.
type State string

// The states of an operation.
const (
	Initial    State = "initial" // not yet sent to the broker
	InProgress State = "in progress"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
)

// Context tells the broker in which org and space an instance is.
type Context struct {
	Org, OrgName     string // guid and name
	Space, SpaceName string
	InstanceName     string
}

// InstanceRequest is a request to create, update or delete a service instance.
type InstanceRequest struct {
	Action              Action
	Instance            string // guid
	Offering, Plan      string // ids in the broker's catalog
	PreviousPlan        string // for an update
	PreviousMaintenance string // for an update
	Parameters          json.RawMessage
	Context             Context
	MaintenanceVersion  string
	By                  app.Actor // the user who requested it
}

// BindingRequest is a request to create or delete a binding.
type BindingRequest struct {
	Action         Action
	Binding        string // guid
	Instance       string // guid
	Offering, Plan string // ids in the broker's catalog
	App            string // guid (empty for a key or a route binding)
	Route          string // as users write it, without a scheme; empty if not a route binding
	Name           string
	Parameters     json.RawMessage
	Context        Context
	By             app.Actor
}

// LastOperationRequest asks for the state of an operation. Binding is empty for an
// operation of an instance.
type LastOperationRequest struct {
	Action            Action
	Instance, Binding string // guids
	Offering, Plan    string // ids in the broker's catalog
	Operation         string // the broker's id of the operation
	By                app.Actor
}

// Progress is the state of an operation at a broker.
type Progress struct {
	State       State
	Description string        // shown to users during and after the operation
	Operation   string        // the broker's id of the operation, passed to LastOperation
	RetryAfter  time.Duration // 0: the poller chooses
	Dashboard   string
	Binding     *BindingData // of a binding that was created synchronously
	Gone        bool         // a delete found nothing, which counts as success
}

// BindingData is the content of a binding.
type BindingData struct {
	Credentials  json.RawMessage // an object
	SyslogDrain  string
	RouteService string
	VolumeMounts json.RawMessage // an array
	Parameters   json.RawMessage // set by FetchBinding only
}

// CatalogOffering is an offering in a broker's catalog.
type CatalogOffering struct {
	ID, Name, Description string
	Tags                  []string
	Requires              []string // "syslog_drain", "route_forwarding", "volume_mount"
	Bindable              bool
	PlanUpdateable        bool
	InstancesRetrievable  bool
	BindingsRetrievable   bool
	AllowContextUpdates   bool
	Metadata              json.RawMessage // an object: displayName, documentationUrl, shareable …
	Plans                 []CatalogPlan
	Dashboard             *DashboardClient // nil: its dashboard does not log users in
}

// DashboardClient is the OAuth client of a dashboard.
type DashboardClient struct{ ID, Secret, RedirectURI string }

// CatalogPlan is a plan in a broker's catalog.
type CatalogPlan struct {
	ID, Name, Description    string
	Paid                     bool
	Bindable, PlanUpdateable *bool           // nil: inherited from the offering
	Metadata                 json.RawMessage // an object: displayName, bullets, costs …
	MaxPolling               time.Duration   // 0: the limit of the marketplace
	Maintenance              Maintenance
	Schemas                  Schemas
}

// Maintenance is the maintenance version of a plan. It is unset if Version is empty.
type Maintenance struct {
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
}

// Schemas are the JSON schemas of parameters. An empty schema allows all parameters.
type Schemas struct {
	InstanceCreate json.RawMessage `json:"instance_create,omitempty"`
	InstanceUpdate json.RawMessage `json:"instance_update,omitempty"`
	BindingCreate  json.RawMessage `json:"binding_create,omitempty"`
}

// CodeConcurrency is the code of a BrokerError whose request can succeed later.
const CodeConcurrency = "ConcurrencyError"

// BrokerError is the reason why a broker did not run an operation. An error of another
// type is handled like a BrokerError with Orphan set.
type BrokerError struct {
	Status      int    // of the HTTP response (0: no response)
	Code        string // "AsyncRequired", "ConcurrencyError" …; often empty
	Description string // a sentence for users
	// Orphan says that the broker may still have created something, which dewd must
	// delete.
	Orphan bool
}

func (e *BrokerError) Error() string { return e.Description }
