package platform

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// FailureOf is why an operation failed, in the platform's words.
func FailureOf(o services.Operation) v3.Error {
	if o.Failure != nil {
		return v3.Error{Code: o.Failure.Code, Title: o.Failure.Title, Detail: o.Failure.Detail}
	}
	return v3.Error{Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: o.Description}
}

// Snapshots copies the data of the service instances of the built-in broker, which
// is the real one.
type Snapshots interface {
	// Snapshots are those of an instance.
	Snapshots(ctx context.Context, instance string) ([]Snapshot, error)
	// Snapshot makes one. It is whole, or not there.
	Snapshot(ctx context.Context, instance string) (Snapshot, error)
	// Restore makes the data of an instance what they were. Doing it twice is the same.
	Restore(ctx context.Context, instance, snapshot string) error
	// DeleteSnapshot removes one; one that is gone is no error.
	DeleteSnapshot(ctx context.Context, instance, snapshot string) error
}

// Snapshot is a copy of the data of a service instance.
type Snapshot struct {
	GUID      string
	CreatedAt time.Time
	Size      int64 // in bytes
}

// Operations on the data of service instances.
const (
	OpSnapshot = "service_instance.snapshot"
	OpRestore  = "service_instance.restore"
)

// SnapshotArgs are the arguments of these operations.
type SnapshotArgs struct {
	Instance string `json:"instance"`
	Snapshot string `json:"snapshot,omitempty"`
}

// HandleServices gives the jobs their operations.
func (p *Platform) HandleServices() {
	for operation, do := range map[string]func(ctx context.Context, a SnapshotArgs) error{
		OpSnapshot: func(ctx context.Context, a SnapshotArgs) error {
			_, err := p.Snapshots.Snapshot(ctx, a.Instance)
			return err
		},
		OpRestore: func(ctx context.Context, a SnapshotArgs) error {
			return p.Snapshots.Restore(ctx, a.Instance, a.Snapshot)
		},
	} {
		p.Jobs.Handle(operation, func(ctx context.Context, j app.Job) ([]string, error) {
			var a SnapshotArgs
			if err := json.Unmarshal(j.Args, &a); err != nil {
				return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
			}
			if p.Snapshots == nil {
				return nil, ErrNoSnapshots
			}
			return nil, do(ctx, a)
		})
	}
}

// ErrNoSnapshots is the refusal where data of services cannot be copied.
var ErrNoSnapshots = Refuse("Snapshots are made of the services of the built-in broker only")
