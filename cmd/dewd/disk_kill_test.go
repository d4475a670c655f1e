//go:build integration

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// diskImages returns the mounted disk images of this dewd.
func (w *routeTest) diskImages() map[string]bool {
	w.t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), w.root) {
			out[strings.TrimSpace(string(b))] = true
		}
	}
	return out
}

// dewd gets SIGKILL right after it mounted the disk image of an instance that does not
// run yet. The next dewd starts the instance and leaves only its image.
func TestKilledAfterMount(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("limited", "  disk_quota: 64M\n")
	w.awaitResponse("limited", "/", "web 0")
	guid := w.appGUID("limited")
	for range rounds(3, 40) {
		w.dew("stop", "limited")
		w.eventually("the image is unmounted", func() error {
			if left := w.diskImages(); len(left) > 0 {
				return fmt.Errorf("mounted: %v", left)
			}
			return nil
		})
		if status, body := w.ask(http.MethodPost, "/v3/apps/"+guid+"/actions/start", ""); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		for deadline := time.Now().Add(patience); len(w.diskImages()) == 0; { // without a pause: the moment is short
			if time.Now().After(deadline) {
				t.Fatal("no disk image is mounted")
			}
		}
		w.kill(syscall.SIGKILL)
		w.startDewd()
		w.awaitResponse("limited", "/", "web 0")
		w.eventually("the image and the things of one instance", func() error {
			if now := w.diskImages(); len(now) != 1 {
				return fmt.Errorf("mounted: %v", now)
			}
			return w.checkOneInstance()
		})
	}
}
