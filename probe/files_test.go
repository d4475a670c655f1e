package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dewrun/dew/testkit"
)

const onFiles = "Files of instances"

func fileAttacks() []attack {
	f := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onFiles, Name: name, Want: want}, run}
	}
	return []attack{
		f("let `dew cp` read a file of the machine through a link", "the link leads to the file system of the container", copyLink),
		f("let `dew cp -r` write outside of its target through a link", "nothing is written outside", copyTree),
		f("let crash files lead to files of the machine", "the link leads to the file system of the container", crashLink),
		f("let a buildpack put a link to a file of the machine into the droplet", "the droplet has the link, not the file", dropletLink),
		f("keep setuid bits in a droplet", "the bits are removed", setuidDroplet),
	}
}

// hostSecret creates a file of the machine that every user can read.
func (w *target) hostSecret() string {
	w.t.Helper()
	name := testkit.WriteFile(w.t, filepath.Join(w.Dir, "host", "secret"), canary+"-host")
	w.must(errors.Join(os.Chmod(filepath.Dir(name), 0o755), os.Chmod(name, 0o644)))
	return name
}

func copyLink(w *target) (string, error) {
	secret := w.hostSecret()
	if got, err := w.try("symlink", "to", secret, "path", "/home/vcap/app/leak"); err != nil || got != "done" {
		return got, fmt.Errorf("no link: %w", err)
	}
	local := filepath.Join(w.Dir, "copied")
	_, all, err := w.runDew("", w.attackerHome, "cp", "attacker:leak", local)
	if err == nil {
		return "copied", errors.New("the link was followed on the machine")
	}
	if b, err := os.ReadFile(local); err == nil && strings.Contains(string(b), canary) {
		return "copied", errors.New("the copy has the file of the machine")
	}
	if !strings.Contains(all, "cannot find leak in the instance") {
		return all, errors.New("another error")
	}
	return "cannot find leak in the instance", nil
}

// copyTree copies a folder with a link into a folder that has it already, twice.
func copyTree(w *target) (string, error) {
	outside := filepath.Join(w.Dir, "outside")
	w.must(os.MkdirAll(outside, 0o755))
	for _, a := range [][]string{
		{"ssh", "attacker", "-c", "mkdir -p /tmp/tree && ln -sfn " + outside + " /tmp/tree/sub"},
		{"cp", "-r", "attacker:/tmp/tree", filepath.Join(w.Dir, "tree")},
		{"ssh", "attacker", "-c", "rm /tmp/tree/sub && mkdir /tmp/tree/sub && echo written > /tmp/tree/sub/file"},
	} {
		if _, all, err := w.runDew("", w.attackerHome, a...); err != nil {
			return all, err
		}
	}
	_, all, err := w.runDew("", w.attackerHome, "cp", "-r", "attacker:/tmp/tree/.", filepath.Join(w.Dir, "tree"))
	if _, serr := os.Stat(filepath.Join(outside, "file")); !errors.Is(serr, fs.ErrNotExist) {
		return "written outside", errors.New("the copy followed its own link")
	}
	if err == nil {
		return "copied inside", nil
	}
	if !strings.Contains(all, "escapes") {
		return all, errors.New("another error")
	}
	return "dew refuses it: path escapes from parent", nil
}

func crashLink(w *target) (string, error) {
	secret := w.hostSecret()
	if got, err := w.try("symlink", "to", secret, "path", "/home/vcap/app/crashed"); err != nil || got != "done" {
		return got, fmt.Errorf("no link: %w", err)
	}
	if _, err := w.try("crash"); err != nil {
		return "", err
	}
	local := filepath.Join(w.Dir, "crashed")
	var said string
	err := w.until(func() error {
		_, all, err := w.runDew("", w.attackerHome, "cp", "--crashed", "attacker:crashed", local)
		said = all
		if err == nil {
			return testkit.Finally(errors.New("the link was followed on the machine"))
		}
		if !strings.Contains(all, "cannot find crashed in the instance") {
			return fmt.Errorf("not yet: %s", all)
		}
		return nil
	})
	if err != nil {
		return said, err
	}
	return "cannot find crashed in the instance", w.running("attacker")
}

// running waits until an app answers again.
func (w *target) running(app string) error {
	return w.until(func() error {
		_, err := w.tryIn(app, "env", "name", "NAME")
		return err
	})
}

// buildpack writes a buildpack folder.
func (w *target) buildpack(name, compile, start string) string {
	w.t.Helper()
	dir := filepath.Join(w.Dir, "packs", name)
	for file, text := range map[string]string{
		"bin/detect": "exit 0", "bin/compile": compile, "bin/release": "echo 'default_process_types: {web: " + start + "}'",
	} {
		at := testkit.WriteFile(w.t, filepath.Join(dir, file), "#!/bin/sh\n"+text+"\n")
		w.must(os.Chmod(at, 0o755))
	}
	return dir
}

// built pushes an app with a hostile buildpack, and returns its guid and its droplet.
func (w *target) built(name, compile string) (app string, files []string, err error) {
	dir := filepath.Join(w.Dir, "small")
	testkit.WriteFile(w.t, filepath.Join(dir, "x"), "x")
	pack := w.buildpack(name, compile, "sleep 1000")
	if _, all, err := w.runDew("", w.attackerHome, "push", name, "-p", dir, "-b", pack, "--no-route", "-m", "32M", "-u", "process"); err != nil {
		return "", nil, fmt.Errorf("%w: %s", err, all)
	}
	out, all, err := w.runDew("", w.attackerHome, "app", name, "--guid")
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s", err, all)
	}
	tarball := filepath.Join(w.Dir, name+".tgz")
	if _, all, err := w.runDew("", w.attackerHome, "download-droplet", name, "-p", tarball); err != nil {
		return "", nil, fmt.Errorf("%w: %s", err, all)
	}
	files, err = listTar(tarball)
	return strings.TrimSpace(out), files, err
}

func dropletLink(w *target) (string, error) {
	secret := w.hostSecret()
	_, files, err := w.built("linked", `ln -s `+secret+` "$1/leak"; ln -s `+filepath.Join(w.Root, "dew.db")+` "$1/store"; ln -s ../../../../../../../etc/shadow "$1/shadow"`)
	if err != nil {
		return "", err
	}
	links := 0
	for _, f := range files {
		if strings.Contains(f, canary) {
			return f, errors.New("the droplet has the file of the machine")
		}
		for _, name := range []string{"leak", "store", "shadow"} {
			if strings.HasSuffix(f, "/"+name+" link") {
				links++
			}
		}
	}
	if links != 3 {
		return strings.Join(files, ", "), fmt.Errorf("the droplet has %d of 3 links", links)
	}
	return "3 links, no file", nil
}

func setuidDroplet(w *target) (string, error) {
	_, files, err := w.built("setuid", `cp /bin/sleep "$1/sleep"; chmod 6755 "$1/sleep"; chmod 2755 "$1"`)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if strings.Contains(f, "setuid") || strings.Contains(f, "setgid") {
			return f, errors.New("a bit is in the droplet")
		}
	}
	return "no such bits", nil
}
