package smoke

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A check is retried at growing intervals until it holds or its time is over. Then the
// last error is the reason.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &checker{}
		var tries int
		began := time.Now()
		err := c.until(t.Context(), 10*time.Second, func(context.Context) error {
			tries++
			return fmt.Errorf("wrong %d", tries)
		})
		f := (*Failure)(nil)
		if !errors.As(err, &f) || f.Status != StatusAssertion || f.Error() != fmt.Sprintf("wrong %d (tried for 10s)", tries) {
			t.Errorf("error = %v after %d tries", err, tries)
		}
		if took := time.Since(began); took != 10*time.Second || tries < 10 || tries > 20 {
			t.Errorf("%d tries in %s", tries, took)
		}
	})
}

// If the time runs out during a try, the reason is still the last real error.
func TestUntilKeepsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		err := (&checker{}).until(t.Context(), time.Second, func(ctx context.Context) error {
			if first {
				first = false
				return errors.New("the status is 503")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		expect(t, err, "the status is 503 (tried for 1s)")
	})
}

// An error that a retry cannot change is reported at once. An error that stops the test
// replaces the last failed attempt.
func TestUntilEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := (&checker{}).until(t.Context(), time.Hour, func(context.Context) error { return final{failed(StatusUsage, "no such path")} })
		if f := (*Failure)(nil); !errors.As(err, &f) || f.Status != StatusUsage || time.Since(began) != 0 {
			t.Errorf("error = %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(failed(StatusCrashed, "it crashed")) })
		err = (&checker{}).until(ctx, time.Hour, func(context.Context) error { return errors.New("not yet") })
		if f := (*Failure)(nil); !errors.As(err, &f) || f.Status != StatusCrashed || time.Since(began) != 3*time.Second {
			t.Errorf("error = %v after %s", err, time.Since(began))
		}
	})
}
