package runtimetest

import (
	"context"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime"
)

// preparing is one running part of PreparingSuite.
type preparing struct{ *suite }

// PreparingSuite tests the contract of a PreparingEngine.
func PreparingSuite(t *testing.T, newConfig func(t *testing.T) SuiteConfig) {
	parts := []struct {
		name string
		test func(preparing)
	}{
		{"NoProcessRunsBeforeProceed", preparing.preparedRunsAfterProceed},
		{"CancelledPreparationLeavesNothing", preparing.cancelledPreparationLeavesNothing},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			g := newConfig(t)
			p.test(preparing{&suite{T: t, ctx: ctx, config: g, engine: g.Engine()}})
		})
	}
}

// prepare starts to prepare a container. The result has the error of Prepare.
func (s preparing) prepare(ctx context.Context, spec runtime.Spec, proceed <-chan struct{}) <-chan prepared {
	s.Helper()
	engine, ok := s.engine.(runtime.PreparingEngine)
	if !ok {
		s.Fatalf("%T is not a PreparingEngine", s.engine)
	}
	done := make(chan prepared, 1)
	go func() {
		c, err := engine.Prepare(ctx, spec, proceed)
		done <- prepared{c, err}
	}()
	return done
}

type prepared struct {
	container runtime.Container
	err       error
}

func (s preparing) preparedRunsAfterProceed() {
	proceed := make(chan struct{})
	spec := s.spec("exit 3", "sleep 1000")
	done := s.prepare(s.ctx, spec, proceed)
	// Another container starts and stops completely in the meantime.
	other := s.start(s.spec("exit 4"))
	<-other.Exits()
	select {
	case p := <-done:
		s.Fatalf("Prepare returned before proceed was closed: %v", p.err)
	default:
	}
	before := time.Now()
	close(proceed)
	p := <-done
	if p.err != nil {
		s.Fatalf("Prepare: %v", p.err)
	}
	if got := p.container.Spec().StartedAt; got.Before(before) {
		s.Errorf("StartedAt = %v, want a time after %v, when proceed was closed", got, before)
	}
	if e := <-p.container.Exits(); e.Exec != runtime.MainExec || e.Code != 3 || e.At.Before(before) {
		s.Errorf("first exit = %+v, want code 3 of main after %v", e, before)
	}
	if err := p.container.Delete(s.ctx); err != nil {
		s.Errorf("Delete: %v", err)
	}
}

func (s preparing) cancelledPreparationLeavesNothing() {
	ctx, cancel := context.WithCancel(s.ctx)
	spec := s.spec("sleep 1000")
	done := s.prepare(ctx, spec, make(chan struct{}))
	other := s.start(s.spec("exit 4"))
	<-other.Exits()
	cancel()
	if p := <-done; p.err == nil {
		s.Fatal("Prepare with a cancelled context returned no error")
	}
	s.start(spec) // the same id: nothing must be left over from before
}
