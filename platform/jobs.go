package platform

import (
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// ForJob is the refusal of a job in the words that its request would have been answered
// with. Other errors stay as they are.
func (p *Platform) ForJob(err error) error {
	if isA[*app.JobError](err) || !isA[*Error](err) && !isA[*services.Refused](err) {
		return err
	}
	_, told := p.Explain(err)
	e := told.Errors[0]
	return &app.JobError{Code: e.Code, Title: e.Title, Detail: e.Detail}
}
