package present

import (
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/services"
)

// ServiceInstance is the service instance that the path names.
func (p *Presenter) ServiceInstance(r *http.Request) (services.Instance, error) {
	i, err := p.Platform.Services.Instance(r.PathValue("guid"))
	return i, rest.Missing("Service instance", err)
}
