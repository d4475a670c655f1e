package droplet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dewrun/dew/app"
)

// MemoryError says that a sidecar must say how much memory it needs.
type MemoryError struct{ Sidecar, Process string }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("sidecar '%s' of process '%s' has no memory value: set applications[].sidecars[].memory in the manifest, such as 64MB, "+
		"because a Java app, or one with a buildpack of its own, takes all memory that no sidecar has reserved", e.Sidecar, e.Process)
}

// CommandError says that nothing tells how a process starts.
type CommandError struct {
	Process string // its type
	Image   bool   // the app is an image
}

func (e *CommandError) Error() string {
	switch {
	case e.Process != app.Web:
		return fmt.Sprintf("No start command found for process %s. Set its `command:` in the manifest, or add it to the Procfile", e.Process)
	case e.Image:
		return "No start command found: the image has neither ENTRYPOINT nor CMD. Set `command:` in the manifest, or use -c"
	}
	return "No start command found. Set `command:` in the manifest, add a Procfile, or use -c"
}

// Command is how a process starts: by its own command, or the droplet's for its type.
// It is a *CommandError that there is neither.
func (d Droplet) Command(p app.Process) (string, error) {
	command := cmp.Or(p.Command, d.Commands[p.Type])
	if command == "" {
		return "", &CommandError{Process: p.Type, Image: d.Run != nil}
	}
	return command, nil
}

// isJava tells by its name whether a buildpack is for Java.
func isJava(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "java") && !strings.Contains(name, "javascript")
}

// CheckMemory refuses the sidecars of a process that have no memory value where
// the process would leave them none: a JVM is given all that is not reserved, and
// nobody knows what a custom buildpack does.
func (d Droplet) CheckMemory(process string, sidecars []app.Sidecar) error {
	if !d.Java && !d.Custom {
		return nil
	}
	for _, s := range sidecars {
		if s.MemoryMB == 0 {
			return &MemoryError{Sidecar: s.Name, Process: process}
		}
	}
	return nil
}
