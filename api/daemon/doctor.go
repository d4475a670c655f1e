package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
)

// doctorHandlers answers requests about the requirements of this machine.
type doctorHandlers struct{ *Handlers }

func (h doctorHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /dew/v1/doctor", Needs: access.Administer, Handler: h.check, Shape: rest.Returns[v3.Doctor](200)},
	}
}

// doctorFresh is the age up to which requests share the results of the checks. The
// checks create a mount and network devices, so requests must not run them all the time.
const doctorFresh = 2 * time.Second

// doctorResults has the newest results of the checks.
type doctorResults struct {
	mu     sync.Mutex // guards newest; held during the checks, so that they run once at a time
	newest v3.Doctor
}

// check runs the checks of dewd doctor.
func (h doctorHandlers) check(r *http.Request) (any, error) {
	if h.Doctor == nil {
		return nil, rest.Unprocessable("This dewd cannot check its machine. Run this command on the machine: dew doctor")
	}
	h.doctor.mu.Lock()
	defer h.doctor.mu.Unlock()
	if time.Since(h.doctor.newest.CheckedAt) >= doctorFresh {
		// The results are shared, so a client that disconnects must not cut them short.
		found := h.Doctor(context.WithoutCancel(r.Context()))
		h.doctor.newest = v3.Doctor{CheckedAt: time.Now().UTC(), Findings: found}
	}
	return h.doctor.newest, nil
}
