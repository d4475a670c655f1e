package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/runtime"
)

// watchEvery is the time between two looks at the running instances.
const watchEvery = 250 * time.Millisecond

// Watch looks at the running instances until ctx is done, and notes if two of them run
// in one slot. During a deployment, two instances of the app except have the same index.
func Watch(ctx context.Context, w *world.World, l *load.Ledger, except string) {
	for {
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return
		}
		first := doubles(w, l)
		if len(first) == 0 {
			continue
		}
		// One can have ended while the groups were read. Both run in the second look if
		// they really run at the same time.
		for slot, ids := range doubles(w, l) {
			if first[slot] == ids && slot.App != except {
				l.Problem(fmt.Sprintf("two instances of %s run at the same time: %s", slot, ids))
			}
		}
	}
}

// doubles returns the slots with more than one running main process, with the ids.
func doubles(w *world.World, l *load.Ledger) map[world.Slot]string {
	found := map[world.Slot]string{}
	out := map[world.Slot]string{}
	for _, in := range w.Running() {
		l.See(in)
		if other, ok := found[in.Slot]; ok {
			out[in.Slot] = other + " and " + in.ID
		}
		found[in.Slot] = in.ID
	}
	return out
}

// StoredLogs reads the log of every app from its oldest line and checks the numbers
// again, and lets dewd verify the stored files.
func StoredLogs(ctx context.Context, s *Subject, bound time.Duration) error {
	for _, a := range s.Apps {
		f := load.NewReader(a, s.Ledger)
		// A line is in the log shortly after its process has reported it.
		printed := s.Ledger.Printed()
		if err := world.Until(ctx, bound, func() error { return linesStored(ctx, s) }); err != nil {
			return err
		}
		if err := f.ReadAll(ctx, s.World); err != nil {
			return fmt.Errorf("cannot read the log of %s: %w", a.Name, err)
		}
		if ps := f.Problems(); len(ps) > 0 {
			return errors.New("the stored log is wrong: " + strings.Join(ps, "\n"))
		}
		if err := f.Missing(printed); err != nil {
			return fmt.Errorf("the stored log is not complete: %w", err)
		}
		report, err := s.World.Client.Logs().Verify(ctx, a.GUID)
		if err != nil {
			return err
		}
		if ps := unexplained(report.Problems); len(ps) > 0 {
			return fmt.Errorf("dew logs --verify finds problems in the log of %s: %v", a.Name, ps)
		}
	}
	return nil
}

// unexplained returns the problems of a log, except the losses that errors of the disk
// have caused. The follower checks that no other instance has one.
func unexplained(problems []string) []string {
	return slices.DeleteFunc(problems, func(p string) bool {
		return strings.Contains(p, "records a loss") && strings.HasSuffix(p, string(runtime.CauseCaptureFailed))
	})
}

// Runs waits until a dewd reports all instances of the apps as running.
func Runs(ctx context.Context, w *world.World, apps []load.App, bound time.Duration) error {
	return world.Until(ctx, bound, func() error {
		for _, a := range apps {
			stats, err := w.Client.Processes().Stats(ctx, a.Process)
			if err != nil {
				return err
			}
			for _, st := range stats {
				if st.State != "RUNNING" {
					return fmt.Errorf("instance %d of %s is %s", st.Index, a.Name, st.State)
				}
			}
		}
		return nil
	})
}

// Deleted deletes all apps and waits until nothing of them is left.
func Deleted(ctx context.Context, s *Subject, bound time.Duration) error {
	for _, a := range s.Apps {
		if _, err := s.World.Dew(ctx, "delete", a.Name, "-f", "-r"); err != nil {
			return err
		}
	}
	err := world.Until(ctx, bound, func() error {
		var left []string
		for name, n := range s.World.Resources() {
			if n != 0 {
				left = append(left, fmt.Sprintf("%s = %d", name, n))
			}
		}
		stored, err := world.Stored(ctx, s.World)
		if err != nil {
			return err
		}
		if left = append(left, stored...); len(left) > 0 {
			slices.Sort(left)
			return errors.New(strings.Join(left, "; "))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("deleted apps left resources: %w", err)
	}
	return nil
}

// NothingLeft fails if a world that was torn down has left something on the machine.
func NothingLeft(s *Subject) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var left []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+s.World.Dir+"/") {
			left = append(left, "a mount: "+strings.TrimSpace(line))
		}
	}
	for _, pattern := range []string{"/sys/class/net/" + s.World.Names.Bridge, "/sys/fs/cgroup/*/" + s.World.Names.Cgroup, "/sys/fs/cgroup/" + s.World.Names.Cgroup, s.World.Run} {
		found, _ := filepath.Glob(pattern) // the pattern is correct
		left = append(left, found...)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range procs {
		b, _ := os.ReadFile(file) // it has exited
		if line := strings.ReplaceAll(string(b), "\x00", " "); strings.Contains(line, s.World.Root) || strings.Contains(line, s.World.Names.Namespace) {
			left = append(left, "a process: "+line)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("teardown left something:\n%s", strings.Join(left, "\n"))
	}
	return nil
}
