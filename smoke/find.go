package smoke

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Folder is one folder to test: manifests, and the checks of their apps.
type Folder struct {
	Name      string // as in the argument
	Dir       string // absolute
	Manifests []string
	Spec      Spec
	HasSpec   bool // false if there is no smoke.yml
}

const allBelow = "/..." // suffix that means every folder below

// Find returns the folders of the arguments. An argument is a folder, a manifest, or
// DIR/... for every folder below that has a smoke.yml and is not marked alone.
func Find(args []string) ([]Folder, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	var all []Folder
	for _, arg := range args {
		some, err := find(arg)
		if err != nil {
			return nil, err
		}
		for _, f := range some {
			if !slices.ContainsFunc(all, func(g Folder) bool { return g.Dir == f.Dir && slices.Equal(g.Manifests, f.Manifests) }) {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

func find(arg string) ([]Folder, error) {
	if root, many := strings.CutSuffix(arg, allBelow); many || arg == "..." {
		if arg == "..." {
			root = "."
		}
		return findBelow(root)
	}
	info, err := os.Stat(arg)
	if err != nil {
		return nil, &Failure{Status: StatusUsage, Err: fmt.Errorf("cannot find the folder or manifest to test: %w", err), Todo: "pass a folder with a smoke.yml or manifest.yml, DIR/... for all folders below DIR, or a manifest"}
	}
	var f Folder
	if info.IsDir() {
		f, err = readFolder(arg)
	} else {
		f, err = readManifest(arg)
	}
	return []Folder{f}, err
}

func findBelow(root string) ([]Folder, error) {
	var all []Folder
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != root && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		if e.IsDir() || e.Name() != File {
			return nil
		}
		f, err := readFolder(filepath.Dir(path))
		if err == nil && !f.Spec.Alone {
			all = append(all, f)
		}
		return err
	})
	if f := (*Failure)(nil); errors.As(err, &f) {
		return nil, f
	}
	if err != nil {
		return nil, &Failure{Status: StatusUsage, Err: fmt.Errorf("cannot search %s: %w", root, err)}
	}
	if len(all) == 0 {
		return nil, &Failure{Status: StatusUsage, Err: fmt.Errorf("no %s found under %s (folders marked alone are skipped)", File, root), Todo: "to create one, run: dew smoke init DIR"}
	}
	return all, nil
}

// readFolder reads the smoke.yml of a folder, or only its manifest.
func readFolder(dir string) (Folder, error) {
	f := Folder{Name: filepath.Clean(dir), Spec: Spec{}.withDefaults()}
	var err error
	if f.Dir, err = filepath.Abs(dir); err != nil {
		return f, fmt.Errorf("cannot find the path of %s: %w", dir, err)
	}
	if f.Name == "." {
		f.Name = filepath.Base(f.Dir)
	}
	if err := f.readSpec(filepath.Join(dir, File)); err != nil {
		return f, err
	}
	for _, name := range f.Spec.Manifests {
		path := filepath.Join(f.Dir, name)
		if filepath.IsAbs(name) {
			path = name
		}
		if _, err := os.Stat(path); err != nil {
			todo := "set manifests: in " + File + " to the manifests to push"
			if !f.HasSpec {
				todo = "pass a folder that has a manifest.yml or a smoke.yml"
			}
			return f, &Failure{Status: StatusUsage, Err: fmt.Errorf("%s: cannot find the manifest: %w", f.Name, err), Todo: todo}
		}
		f.Manifests = append(f.Manifests, path)
	}
	return f, nil
}

// readManifest reads one manifest. The checks of the smoke.yml in the same folder
// apply, unless it names other manifests.
func readManifest(path string) (Folder, error) {
	dir := filepath.Dir(path)
	f := Folder{Name: filepath.Clean(path), Spec: Spec{}.withDefaults()}
	abs, err := filepath.Abs(path)
	if err != nil {
		return f, fmt.Errorf("cannot find the path of %s: %w", path, err)
	}
	f.Dir, f.Manifests = filepath.Dir(abs), []string{abs}
	if err := f.readSpec(filepath.Join(dir, File)); err != nil {
		return f, err
	}
	if f.HasSpec && !slices.Equal(f.Spec.Manifests, []string{filepath.Base(path)}) && !slices.Equal(f.Spec.Manifests, []string{"manifest.yml"}) {
		f.Spec, f.HasSpec = Spec{Needs: f.Spec.Needs, Build: f.Spec.Build, Variables: f.Spec.Variables, Services: f.Spec.Services, Before: f.Spec.Before, Timeout: f.Spec.Timeout}.withDefaults(), false
	}
	return f, nil
}

func (f *Folder) readSpec(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Failure{Status: StatusUsage, Err: fmt.Errorf("cannot read the checks: %w", err)}
	}
	if f.Spec, err = Parse(file, text); err != nil {
		return &Failure{Status: StatusUsage, Err: err, Todo: "docs/smoke.md lists the keys of " + File + "; dew smoke init writes an example"}
	}
	f.HasSpec = true
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
