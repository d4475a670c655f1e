package dependencies

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// lifecycle lists the scripts of an app that npm runs when it installs dependencies. They
// can use every file of the app.
var lifecycle = []string{
	"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare",
	"predependencies", "dependencies", "postdependencies",
}

// lockFile is the part of package-lock.json and npm-shrinkwrap.json that matters here.
type lockFile struct {
	Version  int                      `json:"lockfileVersion"`
	Packages map[string]lockedPackage `json:"packages"`
}

type lockedPackage struct {
	Resolved  string `json:"resolved"`
	Integrity string `json:"integrity"`
	Link      bool   `json:"link"`
	InBundle  bool   `json:"inBundle"`
	Dev       bool   `json:"dev"`
	Script    bool   `json:"hasInstallScript"`
}

// node adds the files that determine node_modules.
func (s *sum) node() error {
	raw, ok, err := s.file("package.json")
	if err != nil || !ok {
		return orUncertain(err)
	}
	var about struct {
		Scripts    map[string]any `json:"scripts"`
		Workspaces any            `json:"workspaces"`
	}
	if json.Unmarshal(raw, &about) != nil || about.Workspaces != nil {
		return errUncertain
	}
	for _, name := range lifecycle {
		if _, ok := about.Scripts[name]; ok {
			return errUncertain
		}
	}
	// npm builds this file without a script.
	if _, err := fs.Stat(s.files, "binding.gyp"); !errors.Is(err, fs.ErrNotExist) {
		return orUncertain(err)
	}
	if _, _, err := s.file(".npmrc"); err != nil {
		return err
	}
	locked := false
	for _, name := range []string{"npm-shrinkwrap.json", "package-lock.json"} {
		raw, ok, err := s.file(name)
		if err != nil {
			return err
		}
		if ok {
			locked = true
			err = s.lock(raw)
		}
		if err != nil {
			return err
		}
	}
	if !locked {
		return errUncertain
	}
	return nil
}

// lock checks that a lock file determines the content of every package.
func (s *sum) lock(raw []byte) error {
	var l lockFile
	if json.Unmarshal(raw, &l) != nil || l.Version < 2 {
		return errUncertain
	}
	var tarballs []string
	for name, p := range l.Packages {
		if name == "" || p.Dev {
			continue // the app itself, or not installed
		}
		// A script of a package can use the files of the app.
		if p.Link || p.Script || p.Integrity == "" && !p.InBundle {
			return errUncertain
		}
		if file, ok := strings.CutPrefix(p.Resolved, "file:"); ok {
			tarballs = append(tarballs, path.Clean(file))
		}
	}
	slices.Sort(tarballs)
	for _, name := range tarballs {
		if !fs.ValidPath(name) {
			return errUncertain
		}
		if err := s.stream(name); err != nil {
			return err
		}
	}
	return nil
}

func orUncertain(err error) error {
	if err != nil {
		return err
	}
	return errUncertain
}
