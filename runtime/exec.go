package runtime

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
)

// ErrEnding reports that an instance is stopping and accepts no more sessions.
var ErrEnding = errors.New("the instance is stopping")

// ExecTarget names the process whose environment a session shares.
type ExecTarget struct {
	Process string // guid
	Index   int
	Sidecar string // name; empty: main
}

// ExecKind is the kind of program that runs in a session.
type ExecKind string

// The kinds of sessions.
const (
	ExecShell   ExecKind = "shell"   // the stack's shell, which reads its input
	ExecCommand ExecKind = "command" // Command, run by the stack's shell
	ExecFiles   ExecKind = "files"   // an SFTP server on its input and output
	ExecSocket  ExecKind = "socket"  // its input and output are connected to the UNIX socket Command
)

// ExecSpec describes the program that a session runs.
type ExecSpec struct {
	Kind    ExecKind
	Command string    // command for a shell, or path of a socket
	Env     []string  // overrides the process's own variables
	TTY     *Terminal // nil: three pipes, no terminal
}

// Terminal is the terminal of a session.
type Terminal struct {
	Size  Size
	Modes []TerminalMode // modes that differ from a new terminal's
}

// Size is the size of a terminal, in characters.
type Size struct{ Columns, Rows uint16 }

// TerminalMode is one setting of a terminal, in the numbers of RFC 4254.
type TerminalMode struct {
	Opcode uint8
	Value  uint32
}

// Session is a process next to those of an instance. It shares their user, file system,
// network and memory, but its exit does not affect them.
type Session interface {
	// Streams returns the ends of its input and output. The output stays readable to
	// its end, even long after the process has exited.
	Streams() Streams
	// Resize changes the size of its terminal.
	Resize(ctx context.Context, s Size) error
	// Signal sends sig to every process of the session.
	Signal(sig syscall.Signal) error
	// Wait returns the result of the session as soon as the process has exited. Output
	// can still be unread.
	Wait(ctx context.Context) (SessionEnd, error)
	// Close kills the processes that still run in the session, drops unread output, and
	// removes the session. Every session must be closed; Close can be repeated.
	Close() error
}

// Streams are the ends of a session's input and output.
type Streams struct {
	In  io.WriteCloser // closing it ends the session's input
	Out io.Reader
	Err io.Reader // empty if there is a terminal
}

// SessionEnd is the result of a session.
type SessionEnd struct {
	Code int    // 128+signal when killed
	Why  string // not empty: the process did not exit by itself, for this reason
}

// MergeEnv returns base with the variables of over, which replace those of the same
// names. It drops entries that are not variables.
func MergeEnv(base, over []string) []string {
	var out []string
	at := map[string]int{}
	for _, kv := range slices.Concat(base, over) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if i, known := at[name]; known {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}
