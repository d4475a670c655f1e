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

// FailureOf returns the reason why an operation failed, in the format of Cloud Foundry.
func FailureOf(o services.Operation) v3.Error {
	if o.Failure != nil {
		return v3.Error{Code: o.Failure.Code, Title: o.Failure.Title, Detail: o.Failure.Detail}
	}
	return v3.Error{Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: o.Description}
}

// Snapshots copies the data of service instances. The built-in broker implements it.
type Snapshots interface {
	// Snapshots returns the snapshots of an instance.
	Snapshots(ctx context.Context, instance string) ([]Snapshot, error)
	// Snapshot creates a snapshot. It is either complete or does not exist.
	Snapshot(ctx context.Context, instance string) (Snapshot, error)
	// Restore sets the data of an instance back to a snapshot. It can run twice.
	Restore(ctx context.Context, instance, snapshot string) error
	// DeleteSnapshot deletes a snapshot. A snapshot that no longer exists is not an
	// error.
	DeleteSnapshot(ctx context.Context, instance, snapshot string) error
}

// Snapshot is a copy of the data of a service instance.
type Snapshot struct {
	GUID      string
	CreatedAt time.Time
	Size      int64 // in bytes
}

// The jobs on the data of service instances.
const (
	OpSnapshot = "service_instance.snapshot"
	OpRestore  = "service_instance.restore"
)

// SnapshotArgs holds the arguments of these jobs.
type SnapshotArgs struct {
	Instance string `json:"instance"`
	Snapshot string `json:"snapshot,omitempty"`
}

// HandleServices registers the jobs for snapshots.
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

// ErrNoSnapshots says that the data of a service instance cannot be copied.
var ErrNoSnapshots = Refuse("Snapshots are available only for service instances of the built-in service broker")
