package console

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"
)

// MinutesFromEnv reads a time from the environment as cf does: in minutes, also parts
// of one.
func MinutesFromEnv(name string, otherwise time.Duration) time.Duration {
	n, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil || n <= 0 {
		return otherwise
	}
	return time.Duration(n * float64(time.Minute))
}

// TimeoutCause is the cause of the end of ctx where that is why err came. What was found
// out in time stays, however late it is by now.
func TimeoutCause(ctx context.Context, err error) error {
	f := (*Failure)(nil)
	if err == nil || ctx.Err() == nil || !errors.As(context.Cause(ctx), &f) {
		return err
	}
	if errors.Is(err, f) || errors.Is(err, context.DeadlineExceeded) {
		return f
	}
	return err
}
