package smoketest

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// The first interruption leaves time to clean up; the second does not.
func TestPatience(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	patient, stop := patientContext(ctx, quiet())
	defer stop()
	cancel()
	if patient.Err() != nil {
		t.Error("the end of the work ended the patience")
	}
	// Two equal signals at the same time would be delivered as one.
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if patient.Err() != nil {
			t.Error("patience ended with the first signal")
		}
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	<-patient.Done()
}
