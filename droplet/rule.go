package droplet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dewrun/dew/app"
)

// MemoryError says that a sidecar must declare its memory.
type MemoryError struct{ Sidecar, Process string }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("sidecar '%s' of process '%s' has no memory value: set applications[].sidecars[].memory in the manifest, such as 64MB, "+
		"because a Java app or an app with a custom buildpack uses all memory that is not reserved by sidecars", e.Sidecar, e.Process)
}

// CommandError says that a process has no start command.
type CommandError struct {
	Process string // process type
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

// Command returns the start command of a process: its own, or the droplet's for its
// type. If there is neither, the error is a *CommandError.
func (d Droplet) Command(p app.Process) (string, error) {
	command := cmp.Or(p.Command, d.Commands[p.Type])
	if command == "" {
		return "", &CommandError{Process: p.Type, Image: d.Run != nil}
	}
	return command, nil
}

// isJava reports by its name whether a buildpack is for Java.
func isJava(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "java") && !strings.Contains(name, "javascript")
}

// CheckMemory refuses sidecars without a memory value if the process could leave them
// none. A JVM gets all memory that is not reserved, and the behaviour of a custom
// buildpack is unknown.
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
