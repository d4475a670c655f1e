package platform

import (
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// ForJob returns the error of a job as the response that a request would get. It
// returns other errors unchanged.
func (p *Platform) ForJob(err error) error {
	if isA[*app.JobError](err) || !isA[*Error](err) && !isA[*services.Refused](err) {
		return err
	}
	_, told := p.Explain(err)
	e := told.Errors[0]
	return &app.JobError{Code: e.Code, Title: e.Title, Detail: e.Detail}
}
