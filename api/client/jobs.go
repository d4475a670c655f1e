package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const (
	minPause = 3 * time.Millisecond
	maxPause = 50 * time.Millisecond
)

// Poll calls done repeatedly until done returns true or an error, or ctx is done. A pause
// is a sixteenth of the time so far: short work ends without a noticeable wait, and long
// work causes few requests.
func Poll(ctx context.Context, done func() (bool, error)) error {
	for began := time.Now(); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		t := time.NewTimer(min(max(time.Since(began)/16, minPause), maxPause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}

// follow waits for the job that a response names, if there is one.
func (t *transport) follow(ctx context.Context, h http.Header) error {
	location := h.Get("Location")
	if location == "" {
		return nil
	}
	return Poll(ctx, func() (bool, error) {
		var j v3.Job
		if _, err := t.call(ctx, http.MethodGet, local(location), nil, &j); err != nil {
			return false, err
		}
		switch j.State {
		case v3.JobComplete:
			for _, w := range j.Warnings {
				t.warn(w.Detail)
			}
			return true, nil
		case v3.JobFailed:
			return false, jobError(j)
		default:
			return false, nil
		}
	})
}

// jobError returns a failed job's errors in the form of a refused request.
func jobError(j v3.Job) error {
	if len(j.Errors) == 0 {
		return errors.New("the job " + j.Operation + " failed without an error message")
	}
	e := &Error{Status: http.StatusUnprocessableEntity, Code: j.Errors[0].Code, Title: j.Errors[0].Title}
	for i, one := range j.Errors {
		if i > 0 {
			e.Detail += "\n"
		}
		e.Detail += one.Detail
	}
	return e
}

// Job is an operation that a broker is executing. The zero value is a finished one.
type Job struct{ location string }

// Ended reports whether the operation has finished.
func (j Job) Ended() bool { return j.location == "" }

func (t *transport) begin(ctx context.Context, method, path string, body any) (Job, error) {
	h, err := t.call(ctx, method, path, body, nil)
	return Job{location: h.Get("Location")}, err
}
