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

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// The states of a droplet, as in Cloud Foundry.
const (
	DropletAwaiting = "AWAITING_UPLOAD"
	DropletStaged   = "STAGED"
)

// ErrHasImage says that a droplet already has its files.
var ErrHasImage = errors.New("the files of the droplet were already uploaded: create another droplet")

// Await creates a droplet without files. Its commands override those in the files.
func (s *Droplets) Await(app string, commands map[string]string) (Droplet, error) {
	d := Droplet{
		GUID: uuid.NewString(), App: app, Stack: stack.Default, Commands: maps.Clone(commands), State: DropletAwaiting,
		CreatedAt: time.Now().UTC(),
	}
	return d, s.Put(d)
}

// Fill sets the files of a droplet: a compressed tar in the format of Cloud Foundry, at
// most as large as a staging can produce. The droplet cannot be restaged, so it gets
// the present service bindings of its app. A refusal is an *archive.Error.
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
	go func() { w.CloseWithError(u.copy(w, archive.UntilDone(ctx, tgz))) }()
	sha, err := s.AddImage(r)
	r.CloseWithError(errors.New("the image was refused"))
	if err != nil {
		return d, err
	}
	defer s.releaseImage(sha)
	var info stagingFile
	if err := decodeYAML(u.info, &info); err != nil {
		return d, &archive.Error{Entry: archive.StagingInfo, Reason: "is not valid: " + err.Error()}
	}
	d.State, d.Image, d.UpdatedAt = "", sha, time.Now().UTC()
	d.Commands = info.commands(d.Commands)
	d.Sidecars, d.Java, d.Custom = info.Sidecars, info.Java || isJava(info.Buildpack), info.Custom
	if info.Buildpack != "" {
		d.Buildpacks = []UsedBuildpack{{Name: info.Buildpack}}
	}
	return d, s.storeIn(d, func(tx *store.Tx) error {
		now, err := s.droplets.With(tx).Get(guid) // it can be deleted by now
		if err == nil && now.State != DropletAwaiting {
			err = ErrHasImage // another caller was faster
		}
		return err
	})
}

// commands returns the commands of the image. Given commands have precedence.
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

// unpacker converts a tar of Cloud Foundry to dew's format: the same files, names
// without ./, no owners, and folders before their contents.
type unpacker struct {
	mb          int // the initial value of left, in MB
	left, files int64
	info        []byte // staging_info.yml
}

func (u *unpacker) copy(to io.Writer, from io.Reader) error {
	z, err := gzip.NewReader(from)
	if err != nil {
		return &archive.Error{Reason: "is not a gzip-compressed tar archive: " + err.Error()}
	}
	in, out := tar.NewReader(z), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return &archive.Error{Reason: "is not a tar archive: " + err.Error()}
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
		return &archive.Error{Entry: h.Name, Reason: "is neither a file, a folder nor a link"}
	}
	u.files--
	u.left -= h.Size
	if u.files < 0 || u.left < 0 {
		return &archive.Error{Reason: fmt.Sprintf("is larger than %dM or has more than %d files", u.mb, maxStagedFiles)}
	}
	clean := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o777, Size: h.Size, Linkname: h.Linkname, ModTime: h.ModTime, Format: tar.FormatPAX}
	if h.Typeflag == tar.TypeLink {
		clean.Linkname = path.Clean(h.Linkname)
	}
	if err := out.WriteHeader(clean); errors.Is(err, tar.ErrHeader) {
		return &archive.Error{Entry: h.Name, Reason: "is not a valid entry: " + err.Error()}
	} else if err != nil {
		return err
	}
	if name == archive.StagingInfo && h.Size <= maxResult {
		raw, err := io.ReadAll(in)
		if err != nil {
			return &archive.Error{Reason: "is incomplete: " + err.Error()}
		}
		u.info = raw
		return archive.WriteAll(out, raw)
	}
	file := &uploadedFile{r: in}
	_, err := io.Copy(out, file)
	if file.err != nil && !errors.Is(file.err, context.Canceled) {
		return &archive.Error{Entry: h.Name, Reason: "is incomplete: " + file.err.Error()}
	}
	return err
}

// uploadedFile remembers the error of its reader, which is the fault of the client. All
// other errors are faults of the machine.
type uploadedFile struct {
	r   io.Reader
	err error
}

func (f *uploadedFile) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}
