package userns

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Without a lock of the main thread, goroutines run on it as well. None of them may
// change its namespaces.
func TestNewThreadIsNeverTheMainThread(t *testing.T) {
	t.Parallel()
	var calls sync.WaitGroup
	for range 200 {
		calls.Go(func() {
			err := onNewThread(func() error {
				if unix.Gettid() == unix.Getpid() {
					t.Error("fn was called on the main thread")
				}
				return unix.EAGAIN
			})
			if err != unix.EAGAIN { //nolint:errorlint // exactly the error of fn
				t.Errorf("onNewThread = %v, want the error of fn", err)
			}
		})
	}
	calls.Wait()
}
