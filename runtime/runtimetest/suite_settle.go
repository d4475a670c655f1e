package runtimetest

import (
	"syscall"

	"github.com/dewrun/dew/runtime"
)

// After Settle the exits of all dead processes can be read at once.
func (s *suite) settleWaitsForReports() {
	container := s.start(s.spec("sleep 1000", "kill -9 $$", "sleep 1000"))
	if err := s.engine.Outage(); err != nil {
		s.Errorf("Outage = %v, want none", err)
	}
	if e := s.nextExit(container); e.Exec != runtime.SidecarExec(0) {
		s.Fatalf("first exit = %+v, want that of the first sidecar", e)
	}
	if err := container.Settle(s.ctx); err != nil {
		s.Errorf("Settle: %v", err)
	}
	select {
	case e := <-container.Exits():
		s.Errorf("exit = %+v, want none: the others live", e)
	default:
	}
	if err := container.Signal(s.ctx, syscall.SIGKILL, runtime.MainExec); err != nil {
		s.Fatalf("Signal: %v", err)
	}
	var e runtime.Exit
	for e.Exec == "" { // a signal takes time, and so does a report
		if err := container.Settle(s.ctx); err != nil {
			s.Fatalf("Settle: %v", err)
		}
		select {
		case e = <-container.Exits():
		default:
		}
	}
	if e.Exec != runtime.MainExec || e.Code != 137 {
		s.Errorf("exit = %+v, want main's, 137", e)
	}
}
