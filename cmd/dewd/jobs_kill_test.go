//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// dewd is killed in the middle of every job that has children, mounts or unfinished
// files. After each, dewd starts, doctor reports no problem, and teardown succeeds.
func TestStartAfterAKillInEveryJob(t *testing.T) {
	runParallel(t)
	for _, group := range []struct {
		name string
		kill func(k *killedJobs)
	}{
		{"stack build, staging and uploads", (*killedJobs).killBuilds},
		{"image import and service snapshot", (*killedJobs).killCopies},
		{"crash files", (*killedJobs).killCrash},
	} {
		t.Run(group.name, func(t *testing.T) {
			k := &killedJobs{cell: newCell(t, "--kill-delay", "1s", "--immediate-restarts", "1000")}
			for range rounds(1, 20) {
				group.kill(k)
				k.check()
			}
		})
	}
}

// killedJobs is a cell whose dewd is killed in the middle of jobs.
type killedJobs struct{ *cell }

// check restarts dewd, runs doctor, and tears down the cell.
func (k *killedJobs) check() {
	k.t.Helper()
	k.eventually("no process of a build is left", func() error {
		if pids := k.builders(); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
	k.start()
	if out, err := k.command("doctor").CombinedOutput(); err != nil || !strings.Contains(string(out), "set aside      nothing") {
		k.t.Errorf("doctor: %v\n%s\ndewd said:\n%s", err, out, k.said)
	}
	if out, err := k.outcome("status"); err != nil || strings.Contains(out, "set aside") {
		k.t.Errorf("status: %v\n%s", err, out)
	}
	k.kill(syscall.SIGKILL)
	if out, err := k.command("teardown").CombinedOutput(); err != nil {
		k.t.Fatalf("teardown: %v\n%s", err, out)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), filepath.Dir(k.root)+"/") {
		k.t.Errorf("mounts are left below %s: %v\n%s", k.root, err, mounts)
	}
}

// builders returns the processes whose temporary files are below the stacks of the
// cell.
func (k *killedJobs) builders() (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		b, _ := os.ReadFile(file) // it has exited
		if bytes.Contains(b, []byte("TMPDIR="+filepath.Join(k.root, "stacks"))) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// path returns the path of a file next to the root.
func (k *killedJobs) path(name string) string { return filepath.Join(filepath.Dir(k.root), name) }

// script writes a program.
func (k *killedJobs) script(name, text string) {
	k.t.Helper()
	file := k.path(name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err = errors.Join(err, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755)); err != nil {
		k.t.Fatal(err)
	}
}

// await waits for a file, and removes it.
func (k *killedJobs) await(name string) {
	k.t.Helper()
	k.eventually(name, func() error { return os.Remove(k.path(name)) })
}

// background starts a command that fails when dewd is killed.
func (k *killedJobs) background(args ...string) {
	k.t.Helper()
	cmd := k.dewCommand(args...)
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// killBuilds kills dewd while it builds a stack and stages an app, and while a
// package and a stack are uploaded.
func (k *killedJobs) killBuilds() {
	k.t.Helper()
	// Like the real program, it mounts below its temporary folder and has children.
	k.script("path/mmdebstrap", `mkdir -p "$TMPDIR/tree/proc" "$TMPDIR/tree/sys"
mount -t proc -o ro proc "$TMPDIR/tree/proc"
mount -t tmpfs tmpfs "$TMPDIR/tree/sys"
sh -c 'sleep 1000; :' &
touch '`+k.path("building")+`'
wait
`)
	k.script("pack/bin/detect", "exit 0\n")
	k.script("pack/bin/compile", "echo compiling; sleep 1000\n")
	k.script("pack/bin/release", "echo '{}'\n")
	k.launchAs(filepath.Join(programs, "dewd"), "PATH="+k.path("path")+":"+os.Getenv("PATH"))
	k.awaitSocket()
	id := fmt.Sprintf("s%d", rand.N(1<<30))
	k.dew("create-buildpack", id, k.path("pack"), "1")
	k.background("stack", "build", "debian", "--name", id)
	k.background("push", id, "-b", id, "-p", k.path("pack"), "-c", "sleep 1000")
	k.upload("/dew/v1/stacks/upload?"+url.Values{"name": {"uploaded"}}.Encode(), "application/x-tar", "")
	k.upload(k.newPackage(id+"-package"), "multipart/form-data; boundary=b",
		"--b\r\nContent-Disposition: form-data; name=\"bits\"; filename=\"bits.zip\"\r\nContent-Type: application/zip\r\n\r\n")
	k.await("building")
	k.eventually("staging", func() error {
		for _, leaves := range k.leaves() {
			if len(leaves["main"]) > 1 {
				return nil
			}
		}
		return errors.New("no build runs")
	})
	k.kill(syscall.SIGKILL)
}

// newPackage creates an app with a package, and returns the path for uploading its
// bits.
func (k *killedJobs) newPackage(name string) string {
	k.t.Helper()
	k.dew("create-app", name)
	guid := strings.TrimSpace(k.output("app", name, "--guid"))
	body := `{"type":"bits","relationships":{"app":{"data":{"guid":"` + guid + `"}}}}`
	var p struct{ GUID string }
	if err := json.Unmarshal([]byte(k.output("curl", "-X", "POST", "/v3/packages", "-d", body)), &p); err != nil || p.GUID == "" {
		k.t.Fatalf("no package: %v", err)
	}
	return "/v3/packages/" + p.GUID + "/upload"
}

// upload sends the start of a body, and returns when dewd has read it.
func (k *killedJobs) upload(path, contentType, head string) {
	k.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(k.run, socketName))
	}}}
	r, w := io.Pipe()
	go func() {
		if resp, err := client.Post("http://dew"+path, contentType, r); err == nil { // dewd is killed before it answers
			resp.Body.Close()
		}
		r.Close()
	}()
	if _, err := w.Write(append([]byte(head), make([]byte, 8<<20)...)); err != nil { // more than the socket holds
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { w.Close() })
}

// killCopies kills dewd while it fetches an image and while it copies the data of a
// service.
func (k *killedJobs) killCopies() {
	k.t.Helper()
	began, stop := make(chan struct{}), make(chan struct{})
	ref := k.slowRegistry(began, stop)
	defer close(stop)
	m := &serviceKillTest{cell: k.cell, engine: "redis"}
	m.live(1)
	m.service()
	k.background("stack", "add", fmt.Sprintf("s%d", rand.N(1<<30)), "--image", ref)
	<-began
	if !m.killedWhile("service-snapshot", killTestDB) {
		k.t.Fatal("dewd did not die in the middle of a snapshot")
	}
}

// slowRegistry serves an image whose layer never ends. began is closed when a client
// reads the layer.
func (k *killedJobs) slowRegistry(began, stop chan struct{}) string {
	k.t.Helper()
	whole, once := registry.New(registry.Logger(log.New(io.Discard, "", 0))), sync.Once{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			whole.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		whole.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if len(body) < 1<<20 { // the configuration
			_, _ = w.Write(body)
			return
		}
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { close(began) })
		<-stop
	}))
	k.t.Cleanup(server.Close)
	image, err := random.Image(4<<20, 1)
	if err != nil {
		k.t.Fatal(err)
	}
	ref := strings.TrimPrefix(server.URL, "http://") + "/slow:1"
	to, err := name.ParseReference(ref)
	if err == nil {
		err = remote.Write(to, image)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return ref
}

// killCrash kills dewd at one of the calls with which it stores the files of a crashed
// instance.
func (k *killedJobs) killCrash() {
	k.t.Helper()
	if _, err := os.Stat(filepath.Join(k.root, "dew.db")); err != nil {
		k.storeApp(idle, idle)
	}
	armed := k.path("armed")
	if err := os.RemoveAll(armed); err != nil {
		k.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	k.launchAs(self, fmt.Sprintf("DEW_TEST_DIE=call %d", 1+rand.N(8)), "DEW_TEST_ARMED="+armed)
	_, leaves := only(k.t, k.settled(1))
	if err := os.Mkdir(armed, 0o700); err != nil {
		k.t.Fatal(err)
	}
	leader, _ := leaderOf(k.t.(*testing.T), leaves["sidecar-0"])
	killPID(k.t, leader)
	var ended *exec.ExitError
	if err := k.cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		k.t.Fatalf("dewd did not die of a crash: %v\n%s", err, k.said)
	}
	k.cmd = nil
}
