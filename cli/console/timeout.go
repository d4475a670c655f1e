package console

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"
)

// MinutesFromEnv reads a duration in minutes, such as 0.5, from a variable, as cf does.
func MinutesFromEnv(name string, otherwise time.Duration) time.Duration {
	n, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil || n <= 0 {
		return otherwise
	}
	return time.Duration(n * float64(time.Minute))
}

// TimeoutCause replaces err with the cause of ctx if err comes from the end of ctx.
// Other errors stay, because they happened in time.
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
