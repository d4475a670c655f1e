package main

import (
	"context"
	"log/slog"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// service notifies systemd of the daemon's state. Without systemd it does nothing.
type service struct {
	log *slog.Logger
}

func (s service) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Warn("cannot notify systemd", "state", state, "err", err)
	}
}

func (s service) ready()    { s.notify(sd.SdNotifyReady) }
func (s service) stopping() { s.notify(sd.SdNotifyStopping) }

// watch notifies systemd's watchdog as long as alive returns nil. A daemon that hangs
// sends nothing, and systemd restarts it. Its apps keep running.
func (s service) watch(ctx context.Context, alive func() error) {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("cannot read the watchdog interval of systemd", "err", err)
		return
	}
	if limit == 0 {
		return
	}
	// Three times per limit, so that one late tick is no problem.
	tick := time.NewTicker(limit / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := alive(); err != nil {
			s.log.Error("dewd is unhealthy: it does not notify the watchdog of systemd", "err", err)
			continue
		}
		s.notify(sd.SdNotifyWatchdog)
	}
}
