package runtimetest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// patience is how long the suite waits for expected events. It is not a promise of
// speed, but ends a test that would hang.
const patience = 3 * time.Minute

// SuiteConfig has the instances of an engine, which outlive it.
type SuiteConfig struct {
	// Engine returns the engine of a new daemon on the same machine. The previous engine is
	// not used any more.
	Engine func() runtime.Engine
	// Spec returns a spec that can start, for a new slot. It has an id, an address and
	// a main process with a valid folder and environment. The suite adds commands and
	// sidecars.
	Spec func() runtime.Spec
	// Lines returns the lines that are already in the log of an app. Nil means that
	// there is no log except the result of Reap.
	Lines func(app string) []logstream.Envelope
}

// EngineSuite tests the contract of an Engine: a Supervisor can use any engine that
// passes. Every part has its own config.
func EngineSuite(t *testing.T, newConfig func(t *testing.T) SuiteConfig) {
	parts := []struct {
		name string
		test func(*suite)
	}{
		{"StartGivesRunningProcesses", (*suite).startGivesRunningProcesses},
		{"ExitsCarryCodes", (*suite).exitsCarryCodes},
		{"ExitsComeInOrder", (*suite).exitsComeInOrder},
		{"SettleWaitsForReports", (*suite).settleWaitsForReports},
		{"SignalReachesOnlyTheNamed", (*suite).signalReachesOnlyTheNamed},
		{"SignalMayBeIgnored", (*suite).signalMayBeIgnored},
		{"ReapReturnsLastLinesOnce", (*suite).reapReturnsLastLinesOnce},
		{"DeleteEndsEverythingAndMayBeRepeated", (*suite).deleteEndsEverything},
		{"AdoptFindsTheLivingAndTheEnded", (*suite).adoptFindsAll},
		{"AdoptedTasksCanBeUsed", (*suite).adoptedContainersCanBeUsed},
		{"SweepRemovesWhatIsNotKept", (*suite).sweepRemoves},
		{"SessionsRunBesideTheProcesses", (*suite).sessionsRunBeside},
		{"SessionsReadTheirInput", (*suite).sessionsReadInput},
		{"SessionsEndWithTheInstance", (*suite).sessionsEndWithTheInstance},
		{"SessionsCanBeEnded", (*suite).sessionsCanBeEnded},
		{"SessionsDoNotOutliveTheirDaemon", (*suite).sessionsDoNotOutlive},
		{"SessionsNeedAProcess", (*suite).sessionsNeedAProcess},
		{"CrashFilesCanBeEntered", (*suite).crashFilesCanBeEntered},
		{"CrashFilesOutliveTheirDaemon", (*suite).crashFilesOutliveTheirDaemon},
		{"CrashFilesAreBounded", (*suite).crashFilesAreBounded},
		{"CrashFilesCanBeDropped", (*suite).crashFilesCanBeDropped},
		{"FailedStartLeavesNothing", (*suite).failedStartLeavesNothing},
		{"CancelledStartLeavesNothing", (*suite).cancelledStartLeavesNothing},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			g := newConfig(t)
			p.test(&suite{T: t, ctx: ctx, config: g, engine: g.Engine()})
		})
	}
}

// suite is one running part.
type suite struct {
	*testing.T
	ctx    context.Context
	config SuiteConfig
	engine runtime.Engine
}

// spec returns a spec with a command for main and for each of the sidecars.
func (s *suite) spec(main string, sidecars ...string) runtime.Spec {
	s.Helper()
	spec := s.config.Spec()
	if len(spec.Processes) == 0 {
		s.Fatal("the spec of the config has no main process")
	}
	template := spec.Processes[0]
	template.Command = main
	spec.Processes = []runtime.ProcessSpec{template}
	for n, command := range sidecars {
		p := template
		p.Exec, p.Command, p.Memory = runtime.SidecarExec(n), command, 0
		p.Name = "side " + string(rune('a'+n)) // a name can have a space
		p.Source = template.Source + "/SIDECAR/" + strings.ToUpper(p.Name)
		spec.Processes = append(spec.Processes, p)
	}
	return spec
}

func (s *suite) start(spec runtime.Spec) runtime.Container {
	s.Helper()
	container, err := s.engine.Start(s.ctx, spec)
	if err != nil {
		s.Fatalf("Start: %v", err)
	}
	from := s.engine
	s.Cleanup(func() {
		if s.engine != from { // the containers of an earlier daemon are not used any more
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := container.Delete(ctx); err != nil {
			s.Errorf("Delete at the end: %v", err)
		}
	})
	return container
}

// nextExit waits for an exit and returns it.
func (s *suite) nextExit(container runtime.Container) runtime.Exit {
	s.Helper()
	select {
	case e, ok := <-container.Exits():
		if !ok {
			s.Fatal("Exits was closed, want an exit")
		}
		return e
	case <-s.ctx.Done():
		s.Fatal("no exit was reported")
	}
	panic("unreachable")
}

// wantExitsClosed waits until the channel of exits is closed.
func (s *suite) wantExitsClosed(container runtime.Container) {
	s.Helper()
	select {
	case e, ok := <-container.Exits():
		if ok {
			s.Fatalf("exit of %s came again, want Exits closed", e.Exec)
		}
	case <-s.ctx.Done():
		s.Fatal("Exits was not closed after the last")
	}
}

// wantNoExit checks that no exit is reported.
func (s *suite) wantNoExit(container runtime.Container) {
	s.Helper()
	select {
	case e, ok := <-container.Exits():
		s.Errorf("exit of %q with %d (open: %v), want none", e.Exec, e.Code, ok)
	default:
	}
}

func (s *suite) signal(container runtime.Container, sig syscall.Signal, execs ...string) {
	s.Helper()
	if err := container.Signal(s.ctx, sig, execs...); err != nil {
		s.Fatalf("Signal %v to %v: %v", sig, execs, err)
	}
}

// nextDaemon replaces the suite's engine by that of the next daemon, and returns the
// adopted containers.
func (s *suite) nextDaemon() map[runtime.InstanceID]runtime.Container {
	s.Helper()
	s.engine = s.config.Engine()
	containers, err := s.engine.Adopt(s.ctx)
	if err != nil {
		s.Fatalf("Adopt: %v", err)
	}
	out := map[runtime.InstanceID]runtime.Container{}
	for _, c := range containers {
		id := c.Spec().Instance
		if out[id] != nil {
			s.Errorf("instance %s was adopted twice", id)
		}
		out[id] = c
	}
	return out
}

const mainExec = runtime.MainExec

func (s *suite) startGivesRunningProcesses() {
	spec := s.spec("sleep 1000", "sleep 1000", "sleep 1000")
	container := s.start(spec)
	if container.Spec().StartedAt.IsZero() {
		s.Error("StartedAt is not set")
	}
	if diff := cmp.Diff(identify(container.Spec()), identify(spec), samePrefix); diff != "" {
		s.Errorf("Spec (-got +want):\n%s", diff)
	}
	s.wantNoExit(container)
	s.signal(container, syscall.SIGKILL, mainExec, "sidecar-0", "sidecar-1")
	var ended []string
	for range 3 {
		ended = append(ended, s.nextExit(container).Exec)
	}
	slices.Sort(ended)
	if diff := cmp.Diff(ended, []string{mainExec, "sidecar-0", "sidecar-1"}); diff != "" {
		s.Errorf("killed processes (-got +want):\n%s", diff)
	}
	s.wantExitsClosed(container)
}

func (s *suite) exitsCarryCodes() {
	for _, c := range []struct {
		command string
		code    int
	}{
		{"exit 0", 0},
		{"exit 3", 3},
		{"kill -9 $$", 137},
		{"echo x; exit 0", 0},
		{"./does-not-exist", 127},
	} {
		spec := s.spec("sleep 1000", c.command)
		container := s.start(spec)
		e := s.nextExit(container)
		if e.At.IsZero() {
			s.Errorf("%s: exit has no time", c.command)
		}
		e.At, e.Exact, e.Memory, e.Usage, e.Signal = time.Time{}, false, runtime.Memory{}, nil, nil
		p := spec.Processes[1]
		want := runtime.Exit{Exec: p.Exec, Name: p.Name, Source: p.Source, Code: c.code, Cause: runtime.CauseExited}
		if diff := cmp.Diff(e, want); diff != "" {
			s.Errorf("%s: exit (-got +want):\n%s", c.command, diff)
		}
		s.wantNoExit(container) // main keeps running: stopping it is policy
		if err := container.Delete(s.ctx); err != nil {
			s.Errorf("Delete: %v", err)
		}
	}
}

func (s *suite) exitsComeInOrder() {
	container := s.start(s.spec("sleep 1000", "sleep 1000", "sleep 1000"))
	var last time.Time
	for _, exec := range []string{"sidecar-1", mainExec, "sidecar-0"} {
		s.signal(container, syscall.SIGKILL, exec)
		e := s.nextExit(container)
		if e.Exec != exec || e.Code != 137 {
			s.Errorf("exit of %s with %d, want %s with 137", e.Exec, e.Code, exec)
		}
		if e.At.Before(last) {
			s.Errorf("%s ended at %v, before the one that ended first at %v", exec, e.At, last)
		}
		last = e.At
	}
	s.wantExitsClosed(container)
}

func (s *suite) signalReachesOnlyTheNamed() {
	container := s.start(s.spec("sleep 1000", "sleep 1000", "sleep 1000"))
	s.signal(container, syscall.SIGTERM, "sidecar-0")
	if e := s.nextExit(container); e.Exec != "sidecar-0" || e.Code != 143 {
		s.Errorf("exit of %s with %d, want sidecar-0 with 143", e.Exec, e.Code)
	}
	s.wantNoExit(container)
	s.signal(container, syscall.SIGKILL, "sidecar-0", mainExec) // the exited one is skipped
	if e := s.nextExit(container); e.Exec != mainExec || e.Code != 137 {
		s.Errorf("exit of %s with %d, want main with 137", e.Exec, e.Code)
	}
	s.wantNoExit(container)
	s.signal(container, syscall.SIGKILL, "sidecar-1")
	if e := s.nextExit(container); e.Exec != "sidecar-1" || e.Code != 137 {
		s.Errorf("exit of %s with %d, want sidecar-1 with 137", e.Exec, e.Code)
	}
	s.wantExitsClosed(container)
	s.signal(container, syscall.SIGKILL, mainExec, "sidecar-0", "sidecar-1")
}

func (s *suite) signalMayBeIgnored() {
	if s.config.Lines == nil {
		s.Skip("without a log the test cannot see when the trap is set")
	}
	spec := s.spec("trap '' TERM; echo ready; sleep 1000")
	container := s.start(spec)
	for !s.logged(spec, "ready") {
		select {
		case <-s.ctx.Done():
			s.Fatal("the process did not get ready")
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.signal(container, syscall.SIGTERM, mainExec)
	s.wantNoExit(container)
	s.signal(container, syscall.SIGKILL, mainExec)
	if e := s.nextExit(container); e.Code != 137 {
		s.Errorf("code = %d, want 137: SIGTERM was to be ignored", e.Code)
	}
}

func (s *suite) logged(spec runtime.Spec, text string) bool {
	return slices.ContainsFunc(s.lines(spec), func(e logstream.Envelope) bool { return string(e.Text) == text })
}

// lines returns the lines of an instance that are in the log.
func (s *suite) lines(spec runtime.Spec) []logstream.Envelope {
	if s.config.Lines == nil {
		return nil
	}
	return slices.DeleteFunc(s.config.Lines(spec.App), func(e logstream.Envelope) bool {
		return e.Source.InstanceID != string(spec.Instance)
	})
}

func (s *suite) reapReturnsLastLinesOnce() {
	spec := s.spec("sleep 1000", "echo first; echo last; exit 0")
	container := s.start(spec)
	s.nextExit(container)
	reaped, err := container.Reap(s.ctx, "sidecar-0")
	if err != nil {
		s.Fatalf("Reap: %v", err)
	}
	var got []string
	for _, e := range append(s.lines(spec), reaped...) {
		got = append(got, e.Source.Type+" "+string(e.Text))
		if e.Source.Index != spec.Slot.Index || e.Stream != logstream.Out {
			s.Errorf("line %q has index %d and stream %d, want %d and %d", e.Text, e.Source.Index, e.Stream, spec.Slot.Index, logstream.Out)
		}
	}
	src := spec.Processes[1].Source
	if diff := cmp.Diff(got, []string{src + " first", src + " last"}); diff != "" {
		s.Errorf("lines in the log and from Reap (-got +want):\n%s", diff)
	}
	again, err := container.Reap(s.ctx, "sidecar-0")
	if err != nil || len(again) > 0 {
		s.Errorf("second Reap = %d lines, %v, want none", len(again), err)
	}
}

func (s *suite) deleteEndsEverything() {
	container := s.start(s.spec("sleep 1000", "sleep 1000"))
	for range 2 {
		if err := container.Delete(s.ctx); err != nil {
			s.Errorf("Delete: %v", err)
		}
	}
	if left := s.nextDaemon(); len(left) > 0 {
		s.Errorf("the next daemon adopted %d instances, want none", len(left))
	}
}

func (s *suite) adoptFindsAll() {
	living := s.spec("sleep 1000", "sleep 1000")
	s.start(living)
	part := s.spec("sleep 1000", "exit 3")
	s.nextExit(s.start(part))
	ended := s.spec("exit 4")
	endedTask := s.start(ended)
	s.nextExit(endedTask)
	s.wantExitsClosed(endedTask)

	found := s.nextDaemon()
	for _, want := range []runtime.Spec{living, part, ended} {
		container := found[want.Instance]
		if container == nil {
			s.Fatalf("instance %s was not adopted", want.Instance)
		}
		if diff := cmp.Diff(identify(container.Spec()), identify(want), samePrefix); diff != "" {
			s.Errorf("adopted spec (-got +want):\n%s", diff)
		}
		if container.Spec().StartedAt.IsZero() {
			s.Error("adopted spec has no StartedAt")
		}
	}
	if len(found) != 3 {
		s.Errorf("adopted %d instances, want 3", len(found))
	}
	if e := s.nextExit(found[part.Instance]); e.Exec != "sidecar-0" || e.Code != 3 || e.At.IsZero() {
		s.Errorf("missed exit of %s with %d at %v, want sidecar-0 with 3", e.Exec, e.Code, e.At)
	}
	if e := s.nextExit(found[ended.Instance]); e.Exec != mainExec || e.Code != 4 {
		s.Errorf("missed exit of %s with %d, want main with 4", e.Exec, e.Code)
	}
	s.wantExitsClosed(found[ended.Instance])
	s.wantNoExit(found[living.Instance])
	s.wantNoExit(found[part.Instance])
	again, err := s.engine.Adopt(s.ctx)
	if err != nil || len(again) > 0 {
		s.Errorf("second Adopt = %d instances, %v, want none", len(again), err)
	}
	s.deleteAll(found)
}

func (s *suite) adoptedContainersCanBeUsed() {
	spec := s.spec("sleep 1000", "sleep 1000")
	s.start(spec)
	found := s.nextDaemon()
	container := found[spec.Instance]
	if container == nil {
		s.Fatal("the instance was not adopted")
	}
	s.signal(container, syscall.SIGTERM, "sidecar-0")
	if e := s.nextExit(container); e.Exec != "sidecar-0" || e.Code != 143 {
		s.Errorf("exit of %s with %d, want sidecar-0 with 143", e.Exec, e.Code)
	}
	if _, err := container.Reap(s.ctx, "sidecar-0"); err != nil {
		s.Errorf("Reap: %v", err)
	}
	s.deleteAll(found)
	if left := s.nextDaemon(); len(left) > 0 {
		s.Errorf("the next daemon adopted %d instances, want none", len(left))
	}
}

func (s *suite) sweepRemoves() {
	kept, swept := s.spec("sleep 1000"), s.spec("sleep 1000")
	s.start(kept)
	s.start(swept)
	s.nextDaemon()
	if err := s.engine.Sweep(s.ctx, map[runtime.InstanceID]bool{kept.Instance: true}); err != nil {
		s.Fatalf("Sweep: %v", err)
	}
	found := s.nextDaemon()
	if found[kept.Instance] == nil {
		s.Error("an instance that must stay was removed")
	}
	if found[swept.Instance] != nil {
		s.Error("an instance that must be removed still exists")
	}
	s.deleteAll(found)
}

func (s *suite) failedStartLeavesNothing() {
	spec := s.spec("sleep 1000")
	broken := spec
	broken.Image = strings.Repeat("0", 64)
	_, err := s.engine.Start(s.ctx, broken)
	if _, ok := errors.AsType[*runtime.StartError](err); !ok {
		s.Fatalf("Start of an image that does not exist = %v, want a StartError", err)
	}
	s.start(spec) // the same id: nothing must be left over from before
	if found := s.nextDaemon(); len(found) != 1 {
		s.Errorf("adopted %d instances, want the one that started", len(found))
	} else {
		s.deleteAll(found)
	}
}

func (s *suite) cancelledStartLeavesNothing() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.engine.Start(ctx, s.spec("sleep 1000")); err == nil {
		s.Fatal("Start with a cancelled context returned no error")
	}
	if found := s.nextDaemon(); len(found) > 0 {
		s.Errorf("adopted %d instances, want none", len(found))
		s.deleteAll(found)
	}
}

func (s *suite) deleteAll(containers map[runtime.InstanceID]runtime.Container) {
	s.Helper()
	for id, c := range containers {
		if err := c.Delete(s.ctx); err != nil {
			s.Errorf("Delete of %s: %v", id, err)
		}
	}
}

// samePrefix is needed because netip hides its fields from cmp.
var samePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// identify returns the part of a spec that an engine must return after adoption.
func identify(s runtime.Spec) runtime.Spec {
	out := runtime.Spec{
		Kind: s.Kind, Instance: s.Instance, Slot: s.Slot, App: s.App, Type: s.Type, Version: s.Version,
		Cell: s.Cell, Droplet: s.Droplet, Address: s.Address, Ports: slices.Clone(s.Ports),
	}
	if len(out.Ports) == 0 {
		out.Ports = nil
	}
	for _, p := range s.Processes {
		out.Processes = append(out.Processes, runtime.ProcessSpec{Exec: p.Exec, Name: p.Name, Source: p.Source})
	}
	return out
}
