package bits

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/ticket"
)

// downloadLifetime is how long a client can start a download after it got its URL.
const downloadLifetime = 5 * time.Minute

// maxDownloads is the number of URLs that one caller can have.
const maxDownloads = 100

// Downloads holds the URLs of files that clients can download without a token. Clients
// of Cloud Foundry expect such a URL, because there the files are in a blobstore.
type Downloads struct{ files *ticket.Store[download] }

// NewDownloads returns an empty store.
func NewDownloads() *Downloads { return &Downloads{files: ticket.New[download](maxDownloads)} }

// download is a file to send.
type download struct {
	open        func(r *http.Request) (io.ReadCloser, error)
	contentType string
	needs       access.Need     // permission that the endpoint of the file requires
	resource    access.Resource // that has the file
	guid        string
	who         auth.Principal // the caller who got the URL
}

// downloadHandlers sends files.
type downloadHandlers struct{ *Handlers }

func (h downloadHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{{
		Pattern: "GET /dew/v1/downloads/{secret}", Needs: access.Public, Handler: h.getDownload,
		Shape: rest.ReturnsBytes("application/gzip", "application/zip"),
	}}
}

// redirect sends the caller to the URL of a file.
func (h *Handlers) redirect(r *http.Request, d download) (any, error) {
	d.guid, d.who = r.PathValue("guid"), access.Principal(r.Context())
	secret := h.Downloads.files.Issue(d.who.ID, d, downloadLifetime)
	return rest.Answer{Status: http.StatusFound, Location: h.Links.Href("dew", "v1", "downloads", secret)}, nil
}

// allowed reports whether the caller who got the URL could get it now: the account, the
// role and the file still exist.
func (h downloadHandlers) allowed(d download) (bool, error) {
	who, err := h.Platform.Auth.Current(d.who)
	if errors.Is(err, auth.ErrBadCode) || err == nil && !access.HasScope(who, http.MethodGet) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	place, err := d.resource.Find(h.Access, d.guid)
	if platform.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	perms, err := h.Access.PermissionsOf(who)
	return perms.Allows(d.needs, place), err
}

// getDownload sends a file to whoever has its URL, unless the caller who got the URL has
// lost the permission.
func (h downloadHandlers) getDownload(r *http.Request) (any, error) {
	d, ok := h.Downloads.files.Get(r.PathValue("secret"))
	if ok {
		var err error
		if ok, err = h.allowed(d); err != nil {
			return nil, err
		}
	}
	if !ok {
		return nil, rest.NotFound("Download")
	}
	content, err := d.open(r)
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusOK, Content: content, ContentType: d.contentType}, nil
}
