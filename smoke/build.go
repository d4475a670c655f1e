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
	Commands string // for sh; empty: there are none
	Dir      string // where they run, absolute
}

// FindBuild reads the build step of the smoke.yml in a folder. Without a smoke.yml
// there is no File.
func FindBuild(dir string) (Build, error) {
	file := filepath.Join(dir, File)
	f := Folder{}
	if err := f.readSpec(file); err != nil || !f.HasSpec {
		return Build{}, err
	}
	abs, err := filepath.Abs(dir)
	return Build{File: file, Commands: f.Spec.Build, Dir: abs}, err
}

// Lines are the commands without comments and empty lines.
func (b Build) Lines() []string {
	var out []string
	for line := range strings.Lines(b.Commands) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// Run runs the commands. What they print goes to show as it comes, which may be nil.
// The error is a *Failure with the last of it.
func (b Build) Run(ctx context.Context, show io.Writer) error {
	return scriptFailed("build", script{text: b.Commands, dir: b.Dir, env: os.Environ(), show: show}.run(ctx))
}
