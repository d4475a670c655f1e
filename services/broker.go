package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dewrun/dew/app"
)

// Broker gives service instances and bindings. HTTPBroker speaks OSB 2.17;
// services/builtin is the built-in one. Every method may be asked again for the
// same guid, and then goes on or tells how it ended.
type Broker interface {
	// Catalog is what there is to have.
	Catalog(ctx context.Context) ([]CatalogOffering, error)
	// Instance creates, updates or deletes one, as r.Action says.
	Instance(ctx context.Context, r InstanceRequest) (Progress, error)
	// Binding creates or deletes one.
	Binding(ctx context.Context, r BindingRequest) (Progress, error)
	// LastOperation tells how far that is which an earlier call left in progress.
	LastOperation(ctx context.Context, r LastOperationRequest) (Progress, error)
	// FetchBinding returns a binding whose creation was asynchronous, or whose
	// parameters somebody asks for.
	FetchBinding(ctx context.Context, r BindingRequest) (BindingData, error)
}

// InstanceFetcher is a Broker that tells what it knows of an instance: those of offerings
// with InstancesRetrievable.
type InstanceFetcher interface {
	FetchInstance(ctx context.Context, r InstanceRequest) (FetchedInstance, error)
}

// FetchedInstance is what a broker knows of an instance.
type FetchedInstance struct {
	Dashboard  string
	Parameters json.RawMessage
}

// Action is what a broker is asked to do.
type Action string

// What a broker may be asked to do.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
)

// State is how far an operation is.
type State string

// The states of an operation.
const (
	Initial    State = "initial" // nobody was asked yet
	InProgress State = "in progress"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
)

// Context is where an instance is, for the broker to know.
type Context struct {
	Org, OrgName     string // guid and name
	Space, SpaceName string
	InstanceName     string
}

// InstanceRequest asks for something to happen to a service instance.
type InstanceRequest struct {
	Action              Action
	Instance            string // guid
	Offering, Plan      string // the broker's own ids, of its catalog
	PreviousPlan        string // of an update
	PreviousMaintenance string // of an update
	Parameters          json.RawMessage
	Context             Context
	MaintenanceVersion  string
	By                  app.Actor // who wants it
}

// BindingRequest asks for something to happen to a binding.
type BindingRequest struct {
	Action         Action
	Binding        string // guid
	Instance       string // guid
	Offering, Plan string // the broker's own ids, of its catalog
	App            string // guid; empty: a key or a route
	Route          string // as users write it, without a scheme; empty: no route binding
	Name           string
	Parameters     json.RawMessage
	Context        Context
	By             app.Actor
}

// LastOperationRequest asks how far an operation is. Binding is empty for one of an instance.
type LastOperationRequest struct {
	Action            Action
	Instance, Binding string // guids
	Offering, Plan    string // the broker's own ids
	Operation         string // what the broker called it
	By                app.Actor
}

// Progress is how far a broker is with what it was asked to do.
type Progress struct {
	State       State
	Description string        // shown to users while and after
	Operation   string        // the broker's word for it, given back to Last
	RetryAfter  time.Duration // 0: as the poller likes
	Dashboard   string
	Binding     *BindingData // of a synchronous binding
	Gone        bool         // a delete found nothing: fine
}

// BindingData is what a binding gives.
type BindingData struct {
	Credentials  json.RawMessage // an object
	SyslogDrain  string
	RouteService string
	VolumeMounts json.RawMessage // an array
	Parameters   json.RawMessage // of Fetch only
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
}

// CatalogPlan is a plan in a broker's catalog.
type CatalogPlan struct {
	ID, Name, Description    string
	Paid                     bool
	Bindable, PlanUpdateable *bool           // nil: as the offering says
	Metadata                 json.RawMessage // an object: displayName, bullets, costs …
	MaxPolling               time.Duration   // 0: as the platform likes
	Maintenance              Maintenance
	Schemas                  Schemas
}

// Maintenance is the version of what a plan gives. Without a version there is none.
type Maintenance struct {
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
}

// Schemas are the JSON schemas of parameters. One that is empty allows everything.
type Schemas struct {
	InstanceCreate json.RawMessage `json:"instance_create,omitempty"`
	InstanceUpdate json.RawMessage `json:"instance_update,omitempty"`
	BindingCreate  json.RawMessage `json:"binding_create,omitempty"`
}

// BrokerError is why a broker did not do what it was asked. An error of another
// type counts as one with Orphan.
type BrokerError struct {
	Status      int    // of the HTTP answer; 0: there was none
	Code        string // "AsyncRequired", "ConcurrencyError" …; often empty
	Description string // a sentence for users
	// Orphan says that the broker may have made something nevertheless, which has to
	// be taken back.
	Orphan bool
}

func (e *BrokerError) Error() string { return e.Description }
