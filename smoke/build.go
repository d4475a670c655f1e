package smoke

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Build is the build step of a smoke.yml.
type Build struct {
	File     string // the smoke.yml
	Commands string // commands for sh, empty for none
	Dir      string // working directory, absolute
}

// FindBuild reads the build step of the smoke.yml in a folder. Without a smoke.yml,
// File is empty.
func FindBuild(dir string) (Build, error) {
	file := filepath.Join(dir, File)
	f := Folder{}
	if err := f.readSpec(file); err != nil || !f.HasSpec {
		return Build{}, err
	}
	abs, err := filepath.Abs(dir)
	return Build{File: file, Commands: f.Spec.Build, Dir: abs}, err
}

// Lines returns the commands without comments and empty lines.
func (b Build) Lines() []string {
	var out []string
	for line := range strings.Lines(b.Commands) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// Run runs the commands. It writes their output to show, which can be nil. The error is
// a *Failure with the last of the output.
func (b Build) Run(ctx context.Context, show io.Writer) error {
	return scriptFailed("build", script{text: b.Commands, dir: b.Dir, env: os.Environ(), show: show}.run(ctx))
}
