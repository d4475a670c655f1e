package command

import (
	"cmp"
	"os"
	"os/exec"
	"syscall"
)

// OpenBrowser starts the browser if there is a display, and does not wait for it. It
// reports whether it started one.
func OpenBrowser(address string) (bool, error) {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return false, nil
	}
	cmd := exec.Command(cmp.Or(os.Getenv("BROWSER"), "xdg-open"), address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in this terminal does not stop it
	if err := cmd.Start(); err != nil {
		return false, err
	}
	return true, cmd.Process.Release()
}
