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

// task is an operation with what is needed to do it. The requests are fixed when
// it begins, so that asking again is asking for the same.
type task struct {
	Operation
	// Open says that Run has something to do.
	Open bool `json:"open,omitempty"`
	// Orphan says that nobody waits for it: it takes back what a failed create may
	// have left. Its record may be gone.
	Orphan bool `json:"orphan,omitempty"`
	// Asked says that the broker may have heard of it.
	Asked    bool             `json:"asked,omitempty"`
	Word     string           `json:"word,omitempty"` // what the broker calls it
	Until    time.Time        `json:"until"`          // it must have ended
	Broker   string           `json:"broker"`         // guid
	Instance *InstanceRequest `json:"instance,omitempty"`
	Bind     *BindingRequest  `json:"bind,omitempty"`
	Wanted   *wantedInstance  `json:"wanted,omitempty"`      // of an update
	Renewed  *BrokerChange    `json:"renewed,omitempty"`     // of a broker's update
	Fetched  bool             `json:"retrievable,omitempty"` // what was made can be fetched
	Requires []string         `json:"requires,omitempty"`    // what bindings of the offering may give beside credentials
}

// wantedInstance is how an instance is to be when its update has succeeded.
type wantedInstance struct {
	Name        string       `json:"name"`
	Tags        []string     `json:"tags,omitempty"`
	Plan        string       `json:"plan"`
	Maintenance string       `json:"maintenance,omitempty"`
	Metadata    app.Metadata `json:"metadata,omitzero"`
}

// verb is the platform's word for what the task does.
func (t task) verb() string {
	switch {
	case t.Kind == OfBroker:
		return "synchronization"
	case t.Kind == OfBinding && t.Action == Create:
		return "bind"
	case t.Kind == OfBinding:
		return "unbind"
	case t.Action == Create:
		return "provision"
	case t.Action == Delete:
		return "deprovision"
	}
	return "update"
}

// begin keeps a new task.
func (l ledger) begin(t task) (Operation, error) {
	t.GUID, t.State, t.Open, t.CreatedAt = uuid.NewString(), Initial, true, now()
	t.UpdatedAt = t.CreatedAt
	if t.Until.IsZero() {
		t.Until = t.CreatedAt.Add(l.polling)
	}
	return t.Operation, put(l.tasks, "operation", t.GUID, t)
}

// close ends a task: what is left of it is what a client may read.
func (l ledger) close(t task, s State, description string) error {
	t.State, t.Description, t.UpdatedAt, t.Open = s, description, now(), false
	t.Instance, t.Bind, t.Wanted, t.Renewed, t.Word = nil, nil, nil, nil, ""
	if s == Failed && t.Failure == nil {
		t.Failure = &Refused{
			Status: http.StatusBadRequest, Code: 10009, Title: "CF-UnableToPerform",
			Detail: fmt.Sprintf("%s could not be completed: %s", t.verb(), description),
		}
	}
	if t.Orphan {
		return drop(l.tasks, "operation", t.GUID)
	}
	return put(l.tasks, "operation", t.GUID, t)
}

// cancel ends the open tasks of a record, since another one takes their place.
func (l ledger) cancel(record, why string) error {
	ts, err := l.tasks.By("record", record)
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, t := range ts {
		if !t.Open {
			continue
		}
		if err := l.close(t, Failed, why); err != nil {
			return err
		}
	}
	return nil
}

// event records what was done to a record.
func (l ledger) event(kind string, by app.Actor, target app.Target, where event) error {
	space, err := l.registry.Space(where.space)
	if err != nil {
		space.GUID = where.space // it is gone, and the event is about that, perhaps
	}
	e := app.Event{
		Type: "audit." + kind, Actor: by, Target: target, Space: space.GUID, Org: cmp.Or(space.Org, where.org), Data: where.data,
	}
	if err := l.events.Record(e); err != nil {
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
