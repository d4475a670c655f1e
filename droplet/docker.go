package droplet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// PackageDocker is the type of packages that name an image in a registry.
const PackageDocker = "docker"

// RunConfig is how the program of an image wants to be run.
type RunConfig struct {
	Ref    string   `json:"ref"`    // as the user wrote it
	Digest string   `json:"digest"` // what it stood for when it was fetched
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir"`
	UID    int      `json:"uid"`
	GID    int      `json:"gid"`
	Home   string   `json:"home"`
	User   string   `json:"user"`
	Ports  []int    `json:"ports,omitempty"` // TCP, in order
}

// CreateImage makes a package that is an image in a registry. It is fetched when
// the package is staged.
func (p *Packages) CreateImage(app string, from ImageSource) (Package, error) {
	if err := CheckImageRef(from.Ref); err != nil {
		return Package{}, err
	}
	now := time.Now().UTC()
	k := Package{GUID: uuid.NewString(), App: app, Type: PackageDocker, State: PackageReady, Image: &from, CreatedAt: now, UpdatedAt: now}
	return k, p.keepNew(k)
}

// stageImage makes a droplet of an image: its layers are fetched, nothing runs.
func (b *Builds) stageImage(ctx context.Context, w Build, k Package) (Droplet, error) {
	s := b.o.Kept
	if s == nil || s.layers == nil {
		return Droplet{}, &StagingError{StagingFailed, "this daemon keeps no images"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.o.Timeout, &StagingError{StagingFailed, fmt.Sprintf("it took longer than %s", b.o.Timeout)})
	defer cancel()
	say := func(line string) { b.o.Say(w.App, line) }
	if err := b.packages.Space(); err != nil {
		return Droplet{}, err
	}
	i, err := s.pull(ctx, *k.Image, say)
	if err != nil {
		return Droplet{}, b.imageError(ctx, err)
	}
	m, who, err := s.takeLayers(ctx, i, say)
	if err != nil {
		return Droplet{}, b.imageError(ctx, err)
	}
	defer m.done()
	run, err := runConfig(i, who)
	if err != nil {
		return Droplet{}, b.imageError(ctx, err)
	}
	d := Droplet{
		GUID: uuid.NewString(), App: w.App, Package: w.Package, Stack: imageStack + i.digest.Hex, Run: &run,
		Commands: map[string]string{},
	}
	if len(run.Args) > 0 {
		d.Commands["web"] = quoteArgs(run.Args)
	}
	if d.Bindings, err = b.currentBindings(w.App); err != nil {
		return Droplet{}, err
	}
	say(fmt.Sprintf("Image %.19s, %s unpacked, runs as user %s", i.digest, inBytes(m.size), run.User))
	// It is kept for as long as a droplet stands on it; until this one does, the
	// build holds it.
	return d, s.holdImage(KeptImage{Digest: i.digest.Hex, Tree: m.tree, Dir: run.Dir}, w.GUID)
}

func (b *Builds) imageError(ctx context.Context, err error) error {
	if why, ok := context.Cause(ctx).(*StagingError); ok { //nolint:errorlint // it is the cause itself
		return why
	}
	return &StagingError{StagingFailed, err.Error()}
}

// holdImage keeps an image, and keeps it from being forgotten until releaseImage.
func (s *Stacks) holdImage(k KeptImage, build string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.images.Put(k.Digest, k); err != nil {
		return fmt.Errorf("cannot keep image %.12s: %w", k.Digest, err)
	}
	s.inUse[k.Digest]++
	s.held[build] = k.Digest
	return nil
}

// releaseImage lets go what a build has held.
func (s *Stacks) releaseImage(build string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest, ok := s.held[build]
	if !ok {
		return
	}
	delete(s.held, build)
	if s.inUse[digest]--; s.inUse[digest] == 0 {
		delete(s.inUse, digest)
	}
}

// runConfig reads how an image wants to be run.
func runConfig(i ociImage, who users) (RunConfig, error) {
	c := i.config.Config
	u, err := who.find(c.User)
	if err != nil {
		return RunConfig{}, err
	}
	run := RunConfig{
		Ref: i.ref, Digest: i.digest.String(), Args: slices.Concat(c.Entrypoint, c.Cmd), Env: slices.Clone(c.Env),
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
		return RunConfig{}, &ImageError{Reason: "has a zero byte in its command"}
	}
	return run, nil
}

// quoteArgs writes arguments as a shell would read them.
func quoteArgs(args []string) string {
	var out []string
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`|&;<>()*?[]{}~#!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

// users are those that a tree knows.
type users struct{ passwd, group string }

// lay puts those of one more layer over them.
func (u *users) lay(l layerFacts) {
	if l.Passwd != nil {
		u.passwd = *l.Passwd
	}
	if l.Group != nil {
		u.group = *l.Group
	}
}

// user is who a program runs as.
type user struct {
	uid, gid   int
	name, home string
}

// maxID is the largest number that a user or group can have.
const maxID = 1<<31 - 1

// find reads the user of an image: a name or a number, and perhaps a group.
func (u users) find(text string) (user, error) {
	name, group, grouped := strings.Cut(text, ":")
	name = cmp.Or(name, "0")
	out := user{name: name}
	id, err := strconv.Atoi(name)
	numeric := err == nil
	if numeric && (id < 0 || id > maxID) {
		return out, &ImageError{Reason: fmt.Sprintf("wants to run as user %q, which is no user", text)}
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
		return out, &ImageError{Reason: fmt.Sprintf("wants to run as user %q, whom its /etc/passwd does not know", name)}
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

func (u users) findGroup(name string) (int, error) {
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
	return 0, &ImageError{Reason: fmt.Sprintf("wants to run in group %q, which its /etc/group does not know", name)}
}
