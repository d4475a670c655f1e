package bits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/pool"
)

// uploadForm is the body type of a file upload.
var uploadForm = rest.Bytes("multipart/form-data")

// upload is the form of an upload, with its file on disk.
type upload struct {
	matched pool.Claim
	bits    *os.File // nil: all files matched
	size    int64
}

// readUpload reads a form part by part and does not hold the file in memory. The caller
// must close the result, even after an error.
func (h *Handlers) readUpload(r *http.Request) (*upload, error) {
	u := &upload{}
	by, err := h.reader(r)
	if err != nil {
		return u, err
	}
	u.matched.By = by
	parts, err := r.MultipartReader()
	if err != nil {
		return u, rest.Unprocessable("The request body must be multipart/form-data with the parts %s and %s", v3.UploadResources, v3.UploadBits)
	}
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return u, nil
		case errors.Is(err, io.EOF):
			return u, rest.Unprocessable("The upload has neither the part %s nor the part %s", v3.UploadResources, v3.UploadBits)
		case err != nil:
			return u, rest.ReadError(err)
		}
		if err := h.readPart(u, part); err != nil {
			return u, err
		}
	}
}

// reader returns the caller as a user of stored files: those of packages that the caller
// can download, and of buildpack folders in spaces that the caller can push to.
func (h *Handlers) reader(r *http.Request) (pool.Reader, error) {
	perms, err := h.Present.Access.Permissions(r.Context())
	if err != nil || perms.Secrets {
		return pool.Reader{}, err
	}
	app, err := h.Present.Secrets(r)
	space := func(guid string) bool { return perms.Can(access.Develop, guid) }
	return pool.Reader{ID: access.Principal(r.Context()).ID, Reads: h.Platform.Packages.Readable(app, space)}, err
}

func (h *Handlers) readPart(u *upload, part *multipart.Part) error {
	switch part.FormName() {
	case v3.UploadResources:
		b, err := io.ReadAll(io.LimitReader(part, rest.MaxBody+1))
		if err != nil {
			return rest.ReadError(err)
		}
		if len(b) > rest.MaxBody {
			return rest.ErrTooLarge
		}
		rs, err := rest.DecodeBytes[[]v3.Resource](b)
		u.matched.Resources = resources(rs)
		return err
	case v3.UploadBits:
		if u.bits != nil {
			return rest.Unprocessable("The upload has the part %s twice", v3.UploadBits)
		}
		return h.readBits(u, part)
	}
	return rest.Unprocessable("The upload has an unknown part '%s'. Valid parts are %s and %s", part.FormName(), v3.UploadResources, v3.UploadBits)
}

func (h *Handlers) readBits(u *upload, part io.Reader) error {
	f, err := os.CreateTemp(h.UploadDir, "upload-*.zip")
	if err != nil {
		return fmt.Errorf("cannot store an upload: %w", err)
	}
	u.bits = f
	// A file without a name is removed when the daemon exits, whatever the cause.
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("cannot store an upload: %w", err)
	}
	from := &errorRecorder{r: part}
	u.size, err = io.Copy(f, from)
	switch {
	case from.err != nil && !errors.Is(from.err, io.EOF):
		return rest.ReadError(from.err)
	case err != nil:
		return fmt.Errorf("cannot store an upload: %w", err)
	}
	return nil
}

// oneFile stores the bits part of a form in a file on disk that has no name.
func (h *Handlers) oneFile(r *http.Request) (f *os.File, name string, err error) {
	if err := h.Platform.Packages.Space(); err != nil {
		return nil, "", err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, "", rest.Unprocessable("The request body must be multipart/form-data with the part %s", v3.UploadBits)
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, "", rest.Unprocessable("The upload has no part %s", v3.UploadBits)
		}
		if err != nil {
			return nil, "", rest.ReadError(err)
		}
		if part.FormName() != v3.UploadBits {
			continue
		}
		u := &upload{}
		if err := h.readBits(u, part); err != nil {
			u.close()
			return nil, "", err
		}
		return u.bits, part.FileName(), nil
	}
}

// errorRecorder remembers the error of its reader. The response depends on whether the client
// or the disk failed.
type errorRecorder struct {
	r   io.Reader
	err error
}

func (t *errorRecorder) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.err = err
	return n, err
}

func (u *upload) give(ctx context.Context, packages *droplet.Packages, guid string) (droplet.Package, error) {
	if u.bits == nil {
		return packages.Upload(ctx, guid, u.matched, nil, 0)
	}
	return packages.Upload(ctx, guid, u.matched, u.bits, u.size)
}

// close closes the file. Package files that were already stored stay.
func (u *upload) close() {
	if u.bits != nil {
		u.bits.Close()
	}
}
