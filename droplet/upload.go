package droplet

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// The states of a droplet, as the platform names them.
const (
	DropletAwaiting = "AWAITING_UPLOAD"
	DropletStaged   = "STAGED"
)

// ErrHasImage is the error of an upload to a droplet that has its files.
var ErrHasImage = errors.New("the droplet has its files already: create another one")

// Await makes a droplet that waits for its files. Commands win over those that
// come with them.
func (s *Droplets) Await(app string, commands map[string]string) (Droplet, error) {
	d := Droplet{
		GUID: uuid.NewString(), App: app, Stack: DefaultStack, Commands: maps.Clone(commands), State: DropletAwaiting,
		CreatedAt: time.Now().UTC(),
	}
	return d, s.Put(d)
}

// Fill gives a droplet its files: a compressed tar as the platform has it, from
// here or from elsewhere, of no more than a staging could leave. Nobody can restage
// it, so that it gets the service bindings of its app with its files. What is
// refused is an *ImageError.
func (b *Builds) Fill(ctx context.Context, guid string, tgz io.Reader) (Droplet, error) {
	s := b.droplets
	d, err := s.Get(guid)
	if err != nil {
		return d, err
	}
	if d.State != DropletAwaiting {
		return d, fmt.Errorf("droplet %s: %w", guid, ErrHasImage)
	}
	if d.Bindings, err = b.currentBindings(d.App); err != nil {
		return d, err
	}
	u := &unpacker{mb: b.o.DiskMB, left: int64(b.o.DiskMB) << 20, files: maxStagedFiles}
	r, w := io.Pipe()
	go func() { w.CloseWithError(u.copy(w, &untilDone{ctx: ctx, r: tgz})) }()
	sha, err := s.AddImage(r)
	r.CloseWithError(errors.New("the image was refused"))
	if err != nil {
		return d, err
	}
	defer s.releaseImage(sha)
	var info stagingFile
	if err := decodeYAML(u.info, &info); err != nil {
		return d, &ImageError{Entry: stagingInfo, Reason: "cannot be used: " + err.Error()}
	}
	d.State, d.Image, d.UpdatedAt = "", sha, time.Now().UTC()
	d.Commands = info.commands(d.Commands)
	d.Sidecars, d.Java, d.Custom = info.Sidecars, info.Java || isJava(info.Buildpack), info.Custom
	if info.Buildpack != "" {
		d.Buildpacks = []UsedBuildpack{{Name: info.Buildpack}}
	}
	return d, s.keep(d, func(tx *store.Tx) error {
		now, err := s.droplets.With(tx).Get(guid) // it may be gone by now
		if err == nil && now.State != DropletAwaiting {
			err = ErrHasImage // by somebody who was faster
		}
		return err
	})
}

// commands are those of the image, but for those that somebody gave before.
func (f stagingFile) commands(given map[string]string) map[string]string {
	out := map[string]string{}
	for kind, command := range f.Processes {
		if processType.MatchString(kind) && strings.TrimSpace(command) != "" {
			out[kind] = command
		}
	}
	if f.Command != "" {
		out["web"] = f.Command
	}
	maps.Copy(out, given)
	return out
}

// unpacker turns the platform's tar into one of ours: the same files, names
// without ./ and owners, folders before what is in them.
type unpacker struct {
	mb          int // that left was at first
	left, files int64
	info        []byte // staging_info.yml
}

func (u *unpacker) copy(to io.Writer, from io.Reader) error {
	z, err := gzip.NewReader(from)
	if err != nil {
		return &ImageError{Reason: "is not a compressed tar: " + err.Error()}
	}
	in, out := tar.NewReader(z), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return &ImageError{Reason: "is not a tar archive: " + err.Error()}
		}
		if err := u.entry(out, h, in); err != nil {
			return err
		}
	}
}

func (u *unpacker) entry(out *tar.Writer, h *tar.Header, in io.Reader) error {
	name := path.Clean(h.Name)
	if name == "." || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink {
		return &ImageError{Entry: h.Name, Reason: "is neither a file, a folder nor a link"}
	}
	u.files--
	u.left -= h.Size
	if u.files < 0 || u.left < 0 {
		return &ImageError{Reason: fmt.Sprintf("is larger than %dM or has more than %d files", u.mb, maxStagedFiles)}
	}
	clean := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o777, Size: h.Size, Linkname: h.Linkname, ModTime: h.ModTime, Format: tar.FormatPAX}
	if h.Typeflag == tar.TypeLink {
		clean.Linkname = path.Clean(h.Linkname)
	}
	if err := out.WriteHeader(clean); err != nil {
		return err
	}
	if name == stagingInfo && h.Size <= maxResult {
		raw, err := io.ReadAll(in)
		if err != nil {
			return &ImageError{Reason: "is cut off: " + err.Error()}
		}
		u.info = raw
		return writeAll(out, raw)
	}
	_, err := io.Copy(out, in)
	return err
}
