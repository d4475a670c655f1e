package marketplace

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// operation is an Operation with the data to run it. The requests are fixed when it is
// created, so that a repeated request is identical.
type operation struct {
	services.Operation
	// Open says that Run must work on it.
	Open bool `json:"open,omitempty"`
	// Orphan says that no client waits for it: it deletes anything that a failed create
	// may have left. Its record may no longer exist.
	Orphan bool `json:"orphan,omitempty"`
	// Requested says that the broker may have received the request.
	Requested         bool                      `json:"asked,omitempty"`
	BrokerOperationID string                    `json:"word,omitempty"` // the broker's id of the operation
	Until             time.Time                 `json:"until"`          // its deadline
	Broker            string                    `json:"broker"`         // guid
	Instance          *services.InstanceRequest `json:"instance,omitempty"`
	Bind              *services.BindingRequest  `json:"bind,omitempty"`
	Wanted            *wantedInstance           `json:"wanted,omitempty"`      // for an update
	BrokerChange      *services.BrokerChange    `json:"renewed,omitempty"`     // for an update of a broker
	Fetched           bool                      `json:"retrievable,omitempty"` // the new resource can be fetched
	Requires          []string                  `json:"requires,omitempty"`    // what bindings of the offering can return besides credentials
}

// wantedInstance is the desired state of an instance after its update.
type wantedInstance struct {
	Name        string       `json:"name"`
	Tags        []string     `json:"tags,omitempty"`
	Plan        string       `json:"plan"`
	Maintenance string       `json:"maintenance,omitempty"`
	Metadata    app.Metadata `json:"metadata,omitzero"`
}

// platformVerb is the Cloud Foundry term for the action of the operation.
func (op operation) platformVerb() string {
	switch {
	case op.Kind == services.OfBroker:
		return "synchronization"
	case op.Kind == services.OfBinding && op.Action == services.Create:
		return "bind"
	case op.Kind == services.OfBinding:
		return "unbind"
	case op.Action == services.Create:
		return "provision"
	case op.Action == services.Delete:
		return "deprovision"
	}
	return "update"
}

// beginOperation stores a new operation.
func (tx operationRecords) beginOperation(op operation) (services.Operation, error) {
	op.GUID, op.State, op.Open, op.CreatedAt = uuid.NewString(), services.Initial, true, now()
	op.UpdatedAt = op.CreatedAt
	if op.Until.IsZero() {
		op.Until = op.CreatedAt.Add(tx.polling)
	}
	return op.Operation, put(tx.operations, "operation", op.GUID, op)
}

// closeOperation closes an operation. It keeps only the fields that clients can read.
func (tx operationRecords) closeOperation(op operation, s services.State, description string) error {
	op.State, op.Description, op.UpdatedAt, op.Open = s, description, now(), false
	op.Instance, op.Bind, op.Wanted, op.BrokerChange, op.BrokerOperationID = nil, nil, nil, nil, ""
	if s == services.Failed && op.Failure == nil {
		op.Failure = &services.Refused{
			Status: http.StatusBadRequest, Code: 10009, Title: "CF-UnableToPerform",
			Detail: fmt.Sprintf("%s could not be completed: %s", op.platformVerb(), description),
		}
	}
	if op.Orphan {
		return drop(tx.operations, "operation", op.GUID)
	}
	return put(tx.operations, "operation", op.GUID, op)
}

// cancelOperations closes the open operations of a record because another one replaces
// them.
func (tx operationRecords) cancelOperations(record, why string) error {
	ops, err := tx.operations.By("record", record)
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, op := range ops {
		if !op.Open {
			continue
		}
		if err := tx.closeOperation(op, services.Failed, why); err != nil {
			return err
		}
	}
	return nil
}

// event records an audit event.
func (tx *tables) event(kind string, by app.Actor, target app.Target, where event) error {
	space, err := tx.registry.Space(where.space)
	if err != nil {
		space.GUID = where.space // it was deleted, and the event may be about that
	}
	e := app.Event{
		Type: "audit." + kind, Actor: by, Target: target, Space: space.GUID, Org: cmp.Or(space.Org, where.org), Data: where.data,
	}
	if err := tx.events.Record(e); err != nil {
		return fmt.Errorf("cannot record event: %w", err)
	}
	return nil
}

// event is the space or org and the data of an audit event.
type event struct {
	space string // guid; empty: no space
	org   string // guid, if there is no space
	data  map[string]any
}

// brokerRefusal returns the error for clients after an invalid broker response.
func brokerRefusal(err error) error {
	return &services.Refused{Status: http.StatusBadGateway, Code: 10001, Title: "CF-ServiceBrokerBadResponse", Detail: err.Error()}
}

// usageStates maps the actions on an instance to the states of usage events.
var usageStates = map[string]string{
	string(services.Create): app.UsageCreated, string(services.Update): app.UsageUpdated, string(services.Delete): app.UsageDeleted, "purge": app.UsageDeleted,
}

// recordUsage stores a usage event for an action on an instance.
func (tx instanceRecords) recordUsage(what string, i services.Instance) error {
	state := usageStates[what]
	if state == "" {
		return nil
	}
	return tx.registry.RecordUsage(tx.usage(state, i), i.Space)
}

// usage returns a usage event of an instance. The name of a deleted plan is empty.
func (tx instanceRecords) usage(state string, i services.Instance) app.Usage {
	u := &app.ServiceUsage{Instance: app.Named{GUID: i.GUID, Name: i.Name}, Type: "user_provided_service_instance"}
	if i.Type == services.Managed {
		u.Type, u.Plan = "managed_service_instance", app.Named{GUID: i.Plan}
		if p, err := tx.plan(i.Plan); err == nil {
			u.Plan.Name, u.Offering.GUID, u.Broker.GUID = p.Name, p.Offering, p.Broker
		}
		if o, err := tx.offering(u.Offering.GUID); err == nil {
			u.Offering.Name = o.Name
		}
		if b, err := tx.brokers.Get(u.Broker.GUID); err == nil {
			u.Broker.Name = b.Name
		}
	}
	return app.Usage{State: state, Service: u, Space: app.Named{GUID: i.Space}}
}

// ReseedUsage deletes the usage events of services and adds a new one for each existing
// instance.
func (m *instances) ReseedUsage() error {
	return m.update(func(tx records) error {
		all, err := tx.instances.All()
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		var events []app.Usage
		for _, i := range all {
			events = append(events, tx.usage(app.UsageCreated, i))
		}
		return tx.registry.PurgeServicesUsage(events)
	})
}
