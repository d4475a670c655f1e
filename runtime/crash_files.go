package runtime

import (
	"context"
	"time"
)

// CrashFiles describes the stored files of a crashed instance. It has the files as they
// were at the crash, and the settings that its processes were started with.
type CrashFiles struct {
	Instance  InstanceID `json:"instance"`
	Slot      SlotID     `json:"slot"`
	App       string     `json:"app"`  // guid
	Type      string     `json:"type"` // process type
	CrashedAt time.Time  `json:"crashed_at"`
	Size      int64      `json:"size"` // size of the files that it had written, in bytes
}

// KeptPerApp is the number of crashed instances per app whose files are stored.
const KeptPerApp = 3

// CrashKeeper is an Engine that stores the files of crashed instances: those of the
// newest ones of each app, within its limits. The files outlive the daemon, as
// instances do.
type CrashKeeper interface {
	// CrashFiles lists the stored files, newest first.
	CrashFiles() []CrashFiles
	// ExecCrashFiles opens a session on a copy of such files, with the settings of the
	// named sidecar, or of main if the name is empty. None of the processes runs there,
	// and there is no network. The copy is deleted when the session is closed. The
	// error is ErrNoInstance if no files of that instance, or no such sidecar, are
	// stored.
	ExecCrashFiles(ctx context.Context, id InstanceID, sidecar string, s ExecSpec) (Session, error)
	// DropCrashFiles removes the stored files of a process and closes the sessions on
	// them.
	DropCrashFiles(ctx context.Context, process string) error
}

// LeavingContainer is a Container that a cluster can remove.
type LeavingContainer interface {
	// Leaving is closed when the cluster starts to remove the container. Its processes
	// get SIGTERM soon, so new requests must not reach it.
	Leaving() <-chan struct{}
}

// KeepableContainer is a Container of a CrashKeeper.
type KeepableContainer interface {
	// KeepFiles makes Delete store the files, so that users can find out why the
	// instance crashed.
	KeepFiles(crashed time.Time)
}
