package stack

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
)

// Users holds the users and groups of a tree.
type Users struct{ passwd, group string }

// addLayer adds the users and groups of one more layer.
func (u *Users) addLayer(l layerFacts) {
	if l.Passwd != nil {
		u.passwd = *l.Passwd
	}
	if l.Group != nil {
		u.group = *l.Group
	}
}

// user is the user and group that a program runs as.
type user struct {
	uid, gid   int
	name, home string
}

// maxID is the largest possible user or group ID.
const maxID = 1<<31 - 1

// find parses the user of an image: a name or an ID, with an optional group.
func (u Users) find(text string) (user, error) {
	name, group, grouped := strings.Cut(text, ":")
	name = cmp.Or(name, "0")
	out := user{name: name}
	id, err := strconv.Atoi(name)
	numeric := err == nil
	if numeric && (id < 0 || id > maxID) {
		return out, &archive.Error{Reason: fmt.Sprintf("has user %q, which is not a valid user", text)}
	}
	out.uid = id
	known := false
	for line := range strings.Lines(u.passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 6 || f[0] != name && (!numeric || f[2] != name) {
			continue
		}
		uid, uerr := strconv.Atoi(f[2])
		gid, gerr := strconv.Atoi(f[3])
		if uerr != nil || gerr != nil || uid < 0 || uid > maxID || gid < 0 || gid > maxID {
			continue
		}
		out.name, out.uid, out.gid, out.home, known = f[0], uid, gid, f[5], true
		break
	}
	if !known && !numeric {
		return out, &archive.Error{Reason: fmt.Sprintf("has user %q, which is not in its /etc/passwd", name)}
	}
	if out.uid == 0 && !known {
		out.name, out.home = "root", "/root"
	}
	if !grouped {
		return out, nil
	}
	out.gid, err = u.findGroup(group)
	return out, err
}

func (u Users) findGroup(name string) (int, error) {
	if id, err := strconv.Atoi(name); err == nil && id >= 0 && id <= maxID {
		return id, nil
	}
	for line := range strings.Lines(u.group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 3 || f[0] != name {
			continue
		}
		if id, err := strconv.Atoi(f[2]); err == nil && id >= 0 && id <= maxID {
			return id, nil
		}
	}
	return 0, &archive.Error{Reason: fmt.Sprintf("has group %q, which is not in its /etc/group", name)}
}

// RunConfig describes how to run the program of an image.
type RunConfig struct {
	Ref    string   `json:"ref"`    // as the user wrote it
	Digest string   `json:"digest"` // its digest when it was fetched
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir"`
	UID    int      `json:"uid"`
	GID    int      `json:"gid"`
	Home   string   `json:"home"`
	User   string   `json:"user"`
	Ports  []int    `json:"ports,omitempty"` // TCP ports, in order
}

// ImageRunConfig reads the run configuration of an image.
func ImageRunConfig(i Image, who Users) (RunConfig, error) {
	c := i.config.Config
	u, err := who.find(c.User)
	if err != nil {
		return RunConfig{}, err
	}
	run := RunConfig{
		Ref: i.ref, Digest: i.Digest.String(), Args: slices.Concat(c.Entrypoint, c.Cmd), Env: slices.Clone(c.Env),
		Dir: path.Clean("/" + c.WorkingDir), UID: u.uid, GID: u.gid, Home: cmp.Or(u.home, "/"), User: u.name,
	}
	for _, p := range slices.Sorted(maps.Keys(c.ExposedPorts)) {
		number, protocol, _ := strings.Cut(p, "/")
		n, err := strconv.Atoi(number)
		if err == nil && n > 0 && n < 65536 && (protocol == "" || protocol == "tcp") {
			run.Ports = append(run.Ports, n)
		}
	}
	slices.Sort(run.Ports)
	run.Env = slices.DeleteFunc(run.Env, func(kv string) bool {
		name, _, ok := strings.Cut(kv, "=")
		return !ok || name == "" || strings.ContainsRune(kv, 0)
	})
	if slices.ContainsFunc(run.Args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return RunConfig{}, &archive.Error{Reason: "has a command that contains a zero byte"}
	}
	return run, nil
}
