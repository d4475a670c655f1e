package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/smoke"
)

// FindBuild reads the build step next to a manifest, or in this folder without one.
func FindBuild(manifest string) (smoke.Build, error) {
	return smoke.FindBuild(filepath.Dir(manifest))
}

// checkBuild fails if --build is set and there is no build step.
func (o Options) checkBuild() error {
	_, err := o.buildStep()
	return err
}

// buildStep is the build step for --build. Without the flag it has no commands.
func (o Options) buildStep() (b smoke.Build, err error) {
	if !o.Build {
		return b, nil
	}
	file := ""
	if !o.Manifest.None {
		if file, err = manifestFile(o.Manifest.File); err != nil {
			return b, err
		}
	}
	if b, err = FindBuild(file); err != nil {
		return b, SmokeFailure(err)
	}
	f := &console.Failure{Status: console.StatusUsage, Advice: "Add the commands that build the app under build: in smoke.yml, or build it yourself and push without --build"}
	switch {
	case b.File == "":
		f.Err = fmt.Errorf("--build: %s does not exist", filepath.Join(filepath.Dir(file), smoke.File))
	case len(b.Lines()) == 0:
		f.Err = fmt.Errorf("--build: %s has no key build", b.File)
	default:
		return b, nil
	}
	return b, f
}

// build runs the build step of smoke.yml if --build is set.
func (o Options) build(ctx context.Context, out *console.Console) error {
	b, err := o.buildStep()
	if err != nil || !o.Build {
		return err
	}
	out.Say("Building with the commands in %s:", b.File)
	for _, line := range b.Lines() {
		out.Say("   $ %s", line)
	}
	wait := out.Wait("Building")
	defer wait.End()
	lines := &lineWriter{each: func(line string) {
		if out.ErrTerminal {
			line = console.Printable(line)
		}
		out.Say("   %s", line)
	}}
	err = b.Run(ctx, lines)
	lines.end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f := (*smoke.Failure)(nil); errors.As(err, &f) {
		return &console.Failure{Status: f.Status, Err: f.Err, Advice: "See its last lines above. Nothing was pushed"}
	}
	return err
}

// lineWriter passes on complete lines, so that they do not mix with the progress line.
type lineWriter struct {
	each func(line string)
	rest []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		w.each(string(bytes.TrimSuffix(w.rest[:i], []byte("\r"))))
		w.rest = w.rest[i+1:]
	}
}

// end passes on a last line without a line end.
func (w *lineWriter) end() {
	if len(w.rest) > 0 {
		w.each(string(w.rest))
		w.rest = nil
	}
}

// checkBits fails with advice if the files of the app do not exist.
func (t target) checkBits(o Options) error {
	_, err := os.Stat(t.bitsPath(o))
	if !errors.Is(err, fs.ErrNotExist) {
		return nil // gather reports other errors
	}
	where, name := "-p", o.Path
	if o.Path == "" {
		where, name = fmt.Sprintf("%s, line %d: path", t.manifest, t.app.Line("path")), t.app.Path
	}
	b, berr := FindBuild(t.manifest)
	commands := strings.Join(b.Lines(), "; ")
	switch {
	case o.Build:
		return &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("%s: the build did not create %s", where, name),
			Advice: "Correct build: in " + b.File + ", or the path",
		}
	case berr == nil && commands != "":
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s does not exist", name), Advice: "To build and push it: dew push --build (runs: " + commands + ")"}
	}
	return &console.Failure{
		Status: console.StatusFailed, Err: fmt.Errorf("%s: cannot find the app's files: %w", where, err),
		Advice: "Build the app first, or correct the path. It must be a folder, zip, jar or war",
	}
}

// SmokeFailure converts an error of package smoke.
func SmokeFailure(err error) error {
	f := (*smoke.Failure)(nil)
	if !errors.As(err, &f) {
		return err
	}
	out := &console.Failure{Status: f.Status, Err: err, Advice: f.Todo}
	if f.Output != "" {
		out.Err = fmt.Errorf("%w\n%s", err, f.Output)
	}
	return out
}
