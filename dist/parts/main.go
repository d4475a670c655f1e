// Command parts writes what the programs of dew consist of: a software bill of materials
// (CycloneDX) and the licenses of all modules.
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

const usage = "usage: parts -version VERSION -out FOLDER PROGRAM…"

func main() {
	version := flag.String("version", "dev", "version of dew")
	out := flag.String("out", "", "folder for dew.cdx.json and LICENSES.txt")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := write(*version, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "parts: "+err.Error())
		os.Exit(1)
	}
}

// part is a module, the standard library, or a script of the console.
type part struct {
	name, version string
	kind          string // of the package URL: golang or npm
	dir           string // with its license
	license       string // file in dir; empty: every license and notice
}

func write(version, out string, programs []string) error {
	parts, err := read(programs)
	if err != nil {
		return err
	}
	bill, err := json.MarshalIndent(describe(version, parts), "", "  ")
	if err != nil {
		return err
	}
	var licenses bytes.Buffer
	for _, p := range parts {
		text, err := p.licenses()
		if err != nil {
			return err
		}
		fmt.Fprintf(&licenses, "%s\n%s %s\n%s\n\n%s\n", strings.Repeat("=", 80), p.name, p.version, strings.Repeat("=", 80), text)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, "dew.cdx.json"), append(bill, '\n'), 0o644), //nolint:forbidigo // not state of dewd
		os.WriteFile(filepath.Join(out, "LICENSES.txt"), licenses.Bytes(), 0o644),   //nolint:forbidigo // not state of dewd
	)
}

// read returns the parts of the programs, each once, in order of their names.
func read(programs []string) ([]part, error) {
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	root, err := goEnv("GOROOT")
	if err != nil {
		return nil, err
	}
	found := map[string]part{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("cannot read the modules of %s: %w", program, err)
		}
		found["std"] = part{name: "std", version: strings.TrimPrefix(info.GoVersion, "go"), kind: "golang", dir: root}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			found[m.Path] = part{name: m.Path, version: m.Version, kind: "golang", dir: filepath.Join(cache, escape(m.Path)+"@"+escape(m.Version))}
		}
	}
	scripts, err := consoleScripts("console/assets/vendor")
	if err != nil {
		return nil, err
	}
	parts := scripts
	for _, p := range found {
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return parts, nil
}

func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("cannot run go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// escape returns a name as it is in the module cache: capital letters have a mark.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// licenses returns the license and the notices of a part.
func (p part) licenses() (string, error) {
	files := []string{filepath.Join(p.dir, p.license)}
	if p.license == "" {
		entries, err := os.ReadDir(p.dir)
		if err != nil {
			return "", fmt.Errorf("cannot find the license of %s: %w", p.name, err)
		}
		files = nil
		for _, e := range entries {
			name := strings.ToUpper(e.Name())
			for _, prefix := range []string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"} {
				if !e.IsDir() && strings.HasPrefix(name, prefix) {
					files = append(files, filepath.Join(p.dir, e.Name()))
				}
			}
		}
	}
	var texts []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("cannot read the license of %s: %w", p.name, err)
		}
		texts = append(texts, strings.TrimSpace(string(b)))
	}
	if len(texts) == 0 {
		return "", fmt.Errorf("%s %s has no license in %s", p.name, p.version, p.dir)
	}
	return strings.Join(texts, "\n\n"), nil
}

// bill is a software bill of materials in the format CycloneDX.
type bill struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"purl,omitempty"`
}

func describe(version string, parts []part) bill {
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{component{Type: "application", Ref: "dew", Name: "dew", Version: version}}}
	for _, p := range parts {
		url := fmt.Sprintf("pkg:%s/%s@%s", p.kind, strings.ReplaceAll(p.name, "@", "%40"), p.version)
		b.Components = append(b.Components, component{Type: "library", Ref: url, Name: p.name, Version: p.version, URL: url})
	}
	return b
}

// consoleScripts returns the third-party scripts of the console, from the list of their
// versions.
func consoleScripts(dir string) (parts []part, err error) {
	list, err := os.ReadFile(filepath.Join(dir, "VERSIONS"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the scripts of the console: %w (run this in the checkout)", err)
	}
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "#" || !unicode.IsDigit(rune(f[2][0])) {
			continue
		}
		license := filepath.Base(f[1]) + ".LICENSE"
		if _, err := os.Stat(filepath.Join(dir, license)); err != nil {
			continue // only the tests of the console use it
		}
		parts = append(parts, part{name: f[1], version: f[2], kind: "npm", dir: dir, license: license})
	}
	return parts, nil
}
