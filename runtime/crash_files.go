package runtime

import (
	"context"
	"time"
)

// CrashFiles is what is kept of an instance that crashed: its files as they were, and
// what its processes were started with.
type CrashFiles struct {
	Instance  InstanceID `json:"instance"`
	Slot      SlotID     `json:"slot"`
	App       string     `json:"app"`  // guid
	Type      string     `json:"type"` // of the process
	CrashedAt time.Time  `json:"crashed_at"`
	Size      int64      `json:"size"` // bytes that it had written
}

// KeptPerApp is of how many crashed instances of an app the files are kept.
const KeptPerApp = 3

// CrashKeeper is an Engine that keeps the files of crashed instances: of the newest of
// each app, within its bounds. What it keeps outlives it, as instances do.
type CrashKeeper interface {
	// CrashFiles lists what is kept, newest first.
	CrashFiles() []CrashFiles
	// ExecCrashFiles opens a session on a copy of such files, with what the named
	// sidecar was started with, or main where the name is empty. None of the
	// processes runs there, and there is no network. The copy goes when the session
	// is closed. The error is ErrNoInstance where nothing, or no such sidecar, is kept.
	ExecCrashFiles(ctx context.Context, id InstanceID, sidecar string, s ExecSpec) (Session, error)
	// DropCrashFiles removes what is kept of a process, and ends the sessions there.
	DropCrashFiles(ctx context.Context, process string) error
}

// KeepableContainer is a Container of a CrashKeeper.
type KeepableContainer interface {
	// KeepFiles makes Delete keep the files, for those who ask why it crashed.
	KeepFiles(crashed time.Time)
}
