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

// operation is an Operation with what is needed to carry it out. The requests are
// fixed when it begins, so that a repeated request is the same request.
type operation struct {
	services.Operation
	// Open says that Run has something to do.
	Open bool `json:"open,omitempty"`
	// Orphan says that nobody waits for it: it takes back what a failed create may
	// have left. Its record may be gone.
	Orphan bool `json:"orphan,omitempty"`
	// Asked says that the broker may have heard of it.
	Asked             bool                      `json:"asked,omitempty"`
	BrokerOperationID string                    `json:"word,omitempty"` // what the broker calls it
	Until             time.Time                 `json:"until"`          // it must have ended
	Broker            string                    `json:"broker"`         // guid
	Instance          *services.InstanceRequest `json:"instance,omitempty"`
	Bind              *services.BindingRequest  `json:"bind,omitempty"`
	Wanted            *wantedInstance           `json:"wanted,omitempty"`      // of an update
	BrokerChange      *services.BrokerChange    `json:"renewed,omitempty"`     // of a broker's update
	Fetched           bool                      `json:"retrievable,omitempty"` // what was made can be fetched
	Requires          []string                  `json:"requires,omitempty"`    // what bindings of the offering may give beside credentials
}

// wantedInstance is how an instance is to be when its update has succeeded.
type wantedInstance struct {
	Name        string       `json:"name"`
	Tags        []string     `json:"tags,omitempty"`
	Plan        string       `json:"plan"`
	Maintenance string       `json:"maintenance,omitempty"`
	Metadata    app.Metadata `json:"metadata,omitzero"`
}

// platformVerb is the term of Cloud Foundry for what the operation does.
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

// closeOperation ends an operation. It keeps only what a client can read.
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

// cancelOperations ends the open operations of a record, because another one replaces them.
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

// event records what was done to a record.
func (tx *tables) event(kind string, by app.Actor, target app.Target, where event) error {
	space, err := tx.registry.Space(where.space)
	if err != nil {
		space.GUID = where.space // it is gone, and the event is about that, perhaps
	}
	e := app.Event{
		Type: "audit." + kind, Actor: by, Target: target, Space: space.GUID, Org: cmp.Or(space.Org, where.org), Data: where.data,
	}
	if err := tx.events.Record(e); err != nil {
		return fmt.Errorf("cannot record event: %w", err)
	}
	return nil
}

// event is where something happened, and what it was.
type event struct {
	space string // guid; empty: in none
	org   string // guid, where there is no space
	data  map[string]any
}

// brokerRefusal is what a client reads when a broker does not answer well.
func brokerRefusal(err error) error {
	return &services.Refused{Status: http.StatusBadGateway, Code: 10001, Title: "CF-ServiceBrokerBadResponse", Detail: err.Error()}
}
