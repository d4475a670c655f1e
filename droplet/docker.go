package droplet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/stack"
)

// PackageDocker is the type of packages that are an image in a registry.
const PackageDocker = "docker"

// CreateImage creates a package that is an image in a registry. Staging fetches it.
func (p *Packages) CreateImage(app string, from stack.ImageSource) (Package, error) {
	if err := stack.CheckImageRef(from.Ref); err != nil {
		return Package{}, err
	}
	now := time.Now().UTC()
	k := Package{GUID: uuid.NewString(), App: app, Type: PackageDocker, State: PackageReady, Image: &from, CreatedAt: now, UpdatedAt: now}
	return k, p.storeNew(k)
}

// stageImage creates a droplet from an image. It fetches the layers and runs nothing.
func (b *Builds) stageImage(ctx context.Context, w Build, k Package) (Droplet, error) {
	s := b.o.StackStore
	if s == nil || !s.StoresImages() {
		return Droplet{}, &StagingError{StagingFailed, "this dewd does not store images"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.o.Timeout, &StagingError{StagingFailed, fmt.Sprintf("staging took longer than the timeout of %s", b.o.Timeout)})
	defer cancel()
	say := func(line string) { b.o.Say(w.App, line) }
	if err := b.packages.Space(); err != nil {
		return Droplet{}, err
	}
	i, err := s.Pull(ctx, *k.Image, say)
	if err != nil {
		return Droplet{}, imageError(ctx, err)
	}
	m, who, err := s.StoreLayers(ctx, i, say)
	if err != nil {
		return Droplet{}, imageError(ctx, err)
	}
	defer m.Done()
	run, err := stack.ImageRunConfig(i, who)
	if err != nil {
		return Droplet{}, imageError(ctx, err)
	}
	d := Droplet{
		GUID: uuid.NewString(), App: w.App, Package: w.Package, Stack: stack.ImagePrefix + i.Digest.Hex, Run: &run,
		Commands: map[string]string{},
	}
	if len(run.Args) > 0 {
		d.Commands["web"] = quoteArgs(run.Args)
	}
	if d.Bindings, err = b.currentBindings(w.App); err != nil {
		return Droplet{}, err
	}
	say(fmt.Sprintf("Image %.19s, %s unpacked, runs as user %s", i.Digest, archive.Size(m.Size), run.User))
	// The image is stored as long as a droplet uses it. Until this droplet is stored,
	// the build holds the image.
	return d, s.HoldImage(stack.ImageRecord{Digest: i.Digest.Hex, Tree: m.Tree, Dir: run.Dir}, w.GUID)
}

func imageError(ctx context.Context, err error) error {
	if why, ok := context.Cause(ctx).(*StagingError); ok { //nolint:errorlint // it is the cause itself
		return why
	}
	return &StagingError{StagingFailed, err.Error()}
}

// quoteArgs returns arguments quoted for a shell.
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
