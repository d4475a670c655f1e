package dependencies

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
)

// rules is part of every key. Increase it if the same files give other dependencies.
const rules = 1

// App is the input of Key.
type App struct {
	Language string    // node, python or ruby
	Version  string    // of the language on the stack
	Files    fs.FS     // the pushed files
	Env      []string  // the variables of the build
	Context  io.Reader // more that the result depends on: the stack and the buildpack
}

// errUncertain says that the files do not determine the dependencies.
var errUncertain = errors.New("the files do not determine the dependencies")

// Key returns a value that is the same for builds with the same dependencies. It is empty
// if the files do not determine them.
func Key(a App) (string, error) {
	s := &sum{hash: sha256.New(), files: a.Files}
	fmt.Fprintf(s.hash, "%d %q %q %q\n", rules, a.Language, a.Version, runtime.GOARCH)
	if _, err := io.Copy(s.hash, a.Context); err != nil {
		return "", err
	}
	var err error
	switch a.Language {
	case "node":
		s.variables(a.Env, affectsInstall)
		err = s.node()
	case "python":
		s.variables(a.Env, affectsInstall)
		err = s.python()
	case "ruby":
		// Bundler compares the installed gems with the Gemfile by itself.
		s.variables(a.Env, func(name string) bool { return strings.HasPrefix(name, "BUNDLE_") })
	default:
		return "", fmt.Errorf("unknown language %q", a.Language)
	}
	if errors.Is(err, errUncertain) || errors.Is(err, fs.ErrNotExist) { // a package that npm will not find
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(s.hash.Sum(nil)), nil
}

// affectsInstall reports whether a variable can affect an installation. The exceptions
// differ between builds that are otherwise the same.
func affectsInstall(name string) bool {
	return !strings.HasPrefix(name, "CF_INSTANCE_") &&
		!slices.Contains([]string{"VCAP_APPLICATION", "PWD", "OLDPWD", "SHLVL", "HOSTNAME", "_"}, name)
}

// sum adds up everything that determines dependencies.
type sum struct {
	hash  hash.Hash
	files fs.FS
}

func (s *sum) variables(env []string, counts func(name string) bool) {
	env = slices.Clone(env)
	slices.Sort(env)
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); counts(name) {
			fmt.Fprintf(s.hash, "variable %q\n", v)
		}
	}
}

// file adds a file and returns its content, and whether it exists.
func (s *sum) file(name string) (raw []byte, exists bool, err error) {
	raw, err = fs.ReadFile(s.files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	fmt.Fprintf(s.hash, "file %q %d %x\n", name, len(raw), sha256.Sum256(raw))
	return raw, true, nil
}

// folder adds the files of a folder. A link or a special file makes it uncertain.
func (s *sum) folder(name string) error {
	return fs.WalkDir(s.files, name, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && p == name:
			return nil
		case err != nil:
			return err
		case d.IsDir():
			fmt.Fprintf(s.hash, "folder %q\n", p)
			return nil
		case !d.Type().IsRegular():
			return errUncertain
		}
		return s.stream(p)
	})
}

// stream adds a file that can be large.
func (s *sum) stream(name string) error {
	f, err := s.files.Open(name)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(s.hash, "file %q %d %x\n", name, n, h.Sum(nil))
	return nil
}
