package daemon

import (
	"context"
	"log/slog"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// Notify reports the state of the daemon to systemd by the protocol sd_notify; without systemd it
// does nothing.
func Notify(log *slog.Logger, state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		log.Warn("systemd could not be told", "state", state, "error", err)
	}
}

// The states of Notify.
const (
	Ready    = systemd.SdNotifyReady
	Stopping = systemd.SdNotifyStopping
)

// Watchdog reports to systemd that the daemon is alive, twice as often as required, until ctx ends. Before each report
// it calls alive. So a part of the daemon that hangs ends the reports.
func Watchdog(ctx context.Context, log *slog.Logger, alive func()) {
	every, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's setting of the watchdog is not understood", "error", err)
	}
	if err != nil || every == 0 {
		return
	}
	tick := time.Tick(every / 2)
	for {
		alive()
		Notify(log, systemd.SdNotifyWatchdog)
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}
