package runtime

import "encoding/json"

// The audit events for a changed result of a readiness check.
const (
	EventReady    = "audit.app.process.ready"
	EventNotReady = "audit.app.process.not-ready"
)

// Readiness reports a changed result of the readiness check of an instance, in the
// platform's format.
type Readiness struct {
	Instance InstanceID `json:"instance"`
	Index    int        `json:"index"`
	Cell     string     `json:"cell_id"`
	Ready    bool       `json:"ready"`
	Version  string     `json:"version"`
}

// Event returns the type of the audit event.
func (r Readiness) Event() string {
	if r.Ready {
		return EventReady
	}
	return EventNotReady
}

// Line returns the change as a line of the app's log.
func (r Readiness) Line(process string) string {
	payload, err := json.Marshal(r)
	if err != nil { // cannot fail: all fields can be encoded
		payload = []byte("{}")
	}
	if r.Ready {
		return "Process became ready with guid " + process + " payload: " + string(payload)
	}
	return "Process became not ready with guid " + process + " payload: " + string(payload)
}
