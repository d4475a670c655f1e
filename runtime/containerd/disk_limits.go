package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/disk"
	"github.com/dewrun/dew/runtime/process"
)

const (
	// upperFolder is the folder of a snapshot that has the files of a layer.
	upperFolder = "fs"
	// diskCheck is the time between two checks of the disk limits.
	diskCheck = 2 * time.Second
	// largestLimit is the time limit for finding the largest directory of an instance.
	largestLimit = 2 * time.Second
)

// layerLimits are the disk limits of the writable layers of containers.
type layerLimits struct {
	*disk.Limits
	e *Engine
}

// apply limits the writable layer of an instance or a task. The mounts stay valid,
// because the layer keeps its folder. If a limit is not possible, the instance runs
// without one, and its log says so. A full disk is an error.
func (d layerLimits) apply(c *container, mounts []mount.Mount) error {
	s := c.spec
	if !d.Enabled() || s.Disk <= 0 || s.Kind != runtime.KindInstance && s.Kind != runtime.KindTask {
		return nil
	}
	err := errNoUpper
	if upper := upperOf(mounts); upper != "" {
		err = d.Limit(string(s.Instance), filepath.Dir(upper), s.Disk)
	}
	if err == nil {
		return nil
	}
	// The kernel reports ENOSPC for missing loop devices as well.
	if errors.Is(err, unix.ENOSPC) && !errors.Is(err, disk.ErrNoLoop) {
		return err
	}
	d.e.log.Warn("an instance runs without its disk limit", "app", s.App, "instance", s.Instance, "err", err)
	d.logCell(c, fmt.Sprintf("The instance runs without its disk limit of %s: %s. To fix it: %s. Then restart the app.",
		megabytes(s.Disk), oneLine(err), disk.Remedy(err)))
	return nil
}

// errNoUpper reports that a snapshot has no folder of its own that could be limited.
var errNoUpper = errors.New("only the snapshotter overlayfs supports disk limits")

// upperOf returns the folder with the files of a writable layer, or nothing.
func upperOf(mounts []mount.Mount) string {
	if len(mounts) != 1 || mounts[0].Type != "overlay" {
		return ""
	}
	for _, o := range mounts[0].Options {
		if dir, ok := strings.CutPrefix(o, "upperdir="); ok && filepath.Base(dir) == upperFolder {
			return dir
		}
	}
	return ""
}

// release frees the layer of an instance. The files of a crashed instance stay.
func (d layerLimits) release(id runtime.InstanceID) error {
	if d.e.crashed.has(id) {
		return d.Unmount(string(id))
	}
	return d.Remove(string(id))
}

// sweep removes the layers of all instances that are neither in keep nor stored as
// crashed.
func (d layerLimits) sweep(keep map[runtime.InstanceID]bool) error {
	return d.Sweep(func(id string) bool { return keep[runtime.InstanceID(id)] }, func(id string) bool { return d.e.crashed.has(runtime.InstanceID(id)) })
}

// facts returns the disk usage of an instance for its exit record. It is zero if the
// instance has no limit.
func (d layerLimits) facts(ctx context.Context, id runtime.InstanceID) runtime.Disk {
	u, ok := d.Of(string(id))
	if !ok {
		return runtime.Disk{}
	}
	out := runtime.Disk{Limit: u.Limit, Used: u.Used, NoFiles: u.NoInodes}
	if u.Full() || u.Nearly() {
		ctx, cancel := context.WithTimeout(ctx, largestLimit)
		defer cancel()
		out.Largest, out.Size = d.Largest(ctx, string(id), upperFolder)
	}
	return out
}

// watch checks the limits until ctx is done, and writes to the log of an app that has
// used all of its limit.
func (d layerLimits) watch(ctx context.Context) {
	for process.Sleep(ctx, diskCheck) == nil {
		for _, n := range d.Check(time.Now()) {
			if c := d.e.known.get(runtime.InstanceID(n.ID)); c != nil {
				d.logCell(c, d.sentence(ctx, n))
			}
		}
	}
}

// sentence is the line about a full disk in the log of an app.
func (d layerLimits) sentence(ctx context.Context, n disk.Notice) string {
	if n.Free >= 0 {
		return fmt.Sprintf("The machine has only %s of free disk space, so the app cannot store more files. Free disk space on the machine.", megabytes(n.Free))
	}
	f := d.facts(ctx, runtime.InstanceID(n.ID))
	if n.NoInodes {
		return fmt.Sprintf("The app has created as many files as its disk quota of %s allows; most of them are in %s. Delete files or raise disk_quota.", megabytes(n.Limit), f.Largest)
	}
	how := "used all of"
	if !n.Full() {
		how = "nearly used up"
	}
	return fmt.Sprintf("The app has %s its disk quota (%s of %s); the largest directory is %s (%s). Delete files or raise disk_quota.",
		how, megabytes(n.Used), megabytes(n.Limit), f.Largest, megabytes(f.Size))
}

// logCell writes a line of the platform to the log of an app.
func (d layerLimits) logCell(c *container, text string) {
	src := logstream.Source{Type: "CELL", Index: c.spec.Slot.Index, InstanceID: string(c.spec.Instance)}
	if err := c.appLog.Append(logstream.Envelope{Source: src, Stream: logstream.Err, Text: []byte(text)}); err != nil {
		d.e.log.Error("cannot write to the app's log", "app", c.spec.App, "err", err)
	}
}

// megabytes formats a number of bytes as in a manifest.
func megabytes(n int64) string { return fmt.Sprintf("%dM", (n+1<<19)>>20) }
