//go:build integration

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The bill of materials has every module of the programs, and every one has a license.
func TestParts(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./cmd/dewd", "./cmd/dew")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	programs := []string{filepath.Join(dir, "dewd"), filepath.Join(dir, "dew")}
	if err := write("v1.2.3", dir, programs); err != nil {
		t.Fatal(err)
	}
	var got bill
	text, err := os.ReadFile(filepath.Join(dir, "dew.cdx.json"))
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	licenses, err := os.ReadFile(filepath.Join(dir, "LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]bool{}
	for _, c := range got.Components {
		if urls[c.URL] || c.Version == "" {
			t.Errorf("component %+v is twice in the list, or has no version", c)
		}
		urls[c.URL] = true
		if !strings.Contains(string(licenses), "\n"+c.Name+" "+c.Version+"\n") {
			t.Errorf("%s has no license in the list", c.Name)
		}
	}
	out, err := exec.Command("go", "version", "-m", programs[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			modules++
			if !urls["pkg:golang/"+f[1]+"@"+f[2]] {
				t.Errorf("module %s %s is not in the bill", f[1], f[2])
			}
		}
	}
	if modules == 0 || !urls["pkg:npm/uplot@1.6.32"] && !strings.Contains(string(text), "pkg:npm/uplot@") {
		t.Errorf("%d modules, and the scripts of the console are in %v", modules, urls)
	}
}

// A program without modules is refused.
func TestNoProgram(t *testing.T) {
	t.Chdir("../..")
	if err := write("v1", t.TempDir(), []string{"README.md"}); err == nil || !strings.Contains(err.Error(), "README.md") {
		t.Errorf("err = %v", err)
	}
}

func TestEscape(t *testing.T) {
	if got := escape("github.com/BurntSushi/toml"); got != "github.com/!burnt!sushi/toml" {
		t.Error(got)
	}
}
