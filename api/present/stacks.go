package present

import (
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/droplet/stack"
)

func (p *Presenter) Stack(r *http.Request) (stack.Record, error) {
	k, err := p.Platform.Stacks().Kept(r.PathValue("guid"))
	return k, rest.Missing("Stack", err)
}
