package services

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// operation is an Operation with what is needed to carry it out. The requests are
// fixed when it begins, so that a repeated request is the same request.
type operation struct {
	Operation
	// Open says that Run has something to do.
	Open bool `json:"open,omitempty"`
	// Orphan says that nobody waits for it: it takes back what a failed create may
	// have left. Its record may be gone.
	Orphan bool `json:"orphan,omitempty"`
	// Asked says that the broker may have heard of it.
	Asked             bool             `json:"asked,omitempty"`
	BrokerOperationID string           `json:"word,omitempty"` // what the broker calls it
	Until             time.Time        `json:"until"`          // it must have ended
	Broker            string           `json:"broker"`         // guid
	Instance          *InstanceRequest `json:"instance,omitempty"`
	Bind              *BindingRequest  `json:"bind,omitempty"`
	Wanted            *wantedInstance  `json:"wanted,omitempty"`      // of an update
	BrokerChange      *BrokerChange    `json:"renewed,omitempty"`     // of a broker's update
	Fetched           bool             `json:"retrievable,omitempty"` // what was made can be fetched
	Requires          []string         `json:"requires,omitempty"`    // what bindings of the offering may give beside credentials
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
	case op.Kind == OfBroker:
		return "synchronization"
	case op.Kind == OfBinding && op.Action == Create:
		return "bind"
	case op.Kind == OfBinding:
		return "unbind"
	case op.Action == Create:
		return "provision"
	case op.Action == Delete:
		return "deprovision"
	}
	return "update"
}

// beginOperation stores a new operation.
func (tx operationRecords) beginOperation(op operation) (Operation, error) {
	op.GUID, op.State, op.Open, op.CreatedAt = uuid.NewString(), Initial, true, now()
	op.UpdatedAt = op.CreatedAt
	if op.Until.IsZero() {
		op.Until = op.CreatedAt.Add(tx.polling)
	}
	return op.Operation, put(tx.operations, "operation", op.GUID, op)
}

// closeOperation ends an operation. It keeps only what a client can read.
func (tx operationRecords) closeOperation(op operation, s State, description string) error {
	op.State, op.Description, op.UpdatedAt, op.Open = s, description, now(), false
	op.Instance, op.Bind, op.Wanted, op.BrokerChange, op.BrokerOperationID = nil, nil, nil, nil, ""
	if s == Failed && op.Failure == nil {
		op.Failure = &Refused{
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
		if err := tx.closeOperation(op, Failed, why); err != nil {
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

// object checks what must be a JSON object, of a bounded size. Nothing and null are
// nothing.
func object(key string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > maxObject {
		return nil, invalid(key, "%s must be at most %d bytes of JSON, not %d", key, maxObject, len(raw))
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, invalid(key, "%s must be a JSON object", key)
	}
	return raw, nil
}

// maxObject bounds parameters and credentials, in bytes.
const maxObject = 1 << 20
