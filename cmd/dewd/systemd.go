package main

import (
	"context"
	"log/slog"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// service tells systemd how the daemon is. Without systemd it tells nobody.
type service struct {
	log *slog.Logger
}

func (s service) tell(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Warn("cannot notify systemd", "state", state, "err", err)
	}
}

func (s service) ready()    { s.tell(sd.SdNotifyReady) }
func (s service) stopping() { s.tell(sd.SdNotifyStopping) }

// watch tells systemd's watchdog that the daemon lives for as long as alive
// returns nil. A daemon that hangs stays silent and is started anew; its apps
// stay meanwhile.
func (s service) watch(ctx context.Context, alive func() error) {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("cannot read systemd's watchdog time", "err", err)
		return
	}
	if limit == 0 {
		return
	}
	// Three times per limit: one late tick is not the end.
	tick := time.NewTicker(limit / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := alive(); err != nil {
			s.log.Error("not well: the watchdog is not told", "err", err)
			continue
		}
		s.tell(sd.SdNotifyWatchdog)
	}
}
