package runtime

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
)

// ErrEnding says that an instance is on its way out and takes no more sessions.
var ErrEnding = errors.New("the instance is ending")

// ExecTarget names the process whose surroundings a session shares.
type ExecTarget struct {
	Process string // guid
	Index   int
	Sidecar string // name; empty: main
}

// ExecKind is what runs in a session.
type ExecKind string

// The kinds of sessions.
const (
	ExecShell   ExecKind = "shell"   // the stack's shell, reading its input
	ExecCommand ExecKind = "command" // Command, by the stack's shell
	ExecFiles   ExecKind = "files"   // an SFTP server on its input and output
	ExecSocket  ExecKind = "socket"  // its input and output are those of the UNIX socket Command
)

// ExecSpec is what a session runs.
type ExecSpec struct {
	Kind    ExecKind
	Command string    // a shell's command, or the path of a socket
	Env     []string  // wins over the process's own
	TTY     *Terminal // nil: three pipes
}

// Terminal is the terminal that a session gets.
type Terminal struct {
	Size  Size
	Modes []TerminalMode // what differs from a new one's
}

// Size is that of a terminal, in characters.
type Size struct{ Columns, Rows uint16 }

// TerminalMode is one setting of a terminal, in the numbers of RFC 4254.
type TerminalMode struct {
	Opcode uint8
	Value  uint32
}

// Session is a process beside those of an instance. It shares their user, file
// system, network and memory, and is none of them: its end ends nothing else.
type Session interface {
	// Streams are the ends of its input and output. Output is complete when it is
	// read to its end, however long after the end of the process that is.
	Streams() Streams
	// Resize gives its terminal another size.
	Resize(ctx context.Context, s Size) error
	// Signal sends sig to everything that runs in it.
	Signal(sig syscall.Signal) error
	// Wait returns how it ended, as soon as it has. Output may still be unread.
	Wait(ctx context.Context) (SessionEnd, error)
	// Close ends what still runs in it, drops output that nobody read, and removes
	// it. Every session must be closed; it may be repeated.
	Close() error
}

// Streams are the ends of a session's input and output.
type Streams struct {
	In  io.WriteCloser // closing it is the end of its input
	Out io.Reader
	Err io.Reader // at its end from the beginning where there is a terminal
}

// SessionEnd is how a session ended.
type SessionEnd struct {
	Code int    // 128+signal when killed
	Why  string // not empty: not by itself, and this is why
}

// MergeEnv is base with the variables of over in place of its own of the same
// names. What is no variable is left out.
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
