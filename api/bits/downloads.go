package bits

import (
	"io"
	"net/http"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
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
	secret := h.Downloads.files.Issue(access.Principal(r.Context()).ID, d, downloadLifetime)
	return rest.Answer{Status: http.StatusFound, Location: h.Links.Href("dew", "v1", "downloads", secret)}, nil
}

// getDownload sends a file to whoever has its URL.
func (h downloadHandlers) getDownload(r *http.Request) (any, error) {
	d, ok := h.Downloads.files.Get(r.PathValue("secret"))
	if !ok {
		return nil, rest.NotFound("Download")
	}
	content, err := d.open(r)
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusOK, Content: content, ContentType: d.contentType}, nil
}
