package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// StatusOf is the exit status of an error.
func StatusOf(err error) int {
	if err == nil {
		return 0
	}
	if f := (*console.Failure)(nil); errors.As(err, &f) {
		return f.Status
	}
	if u := (*client.Unreachable)(nil); errors.As(err, &u) {
		return console.StatusUnreachable
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return console.StatusTimeout
	}
	return console.StatusFailed
}

// ExitStatus is the exit status of a command. If a signal interrupted it, the status is
// 128 plus the number of the signal, as in shells.
func ExitStatus(err, interrupted error) int {
	switch {
	case interrupted == nil || !errors.Is(err, context.Canceled):
		return StatusOf(err)
	case strings.HasPrefix(interrupted.Error(), syscall.SIGTERM.String()):
		return 128 + int(syscall.SIGTERM)
	default:
		return 128 + int(syscall.SIGINT)
	}
}

// Explain is the message of an error, followed by the advice if there is one.
func Explain(err error) string {
	text := strings.TrimSpace(err.Error())
	if todo := AdviceOf(err); todo != "" {
		text += "\n     " + todo
	}
	return text
}

// AdviceOf is the advice for an error; empty if there is none.
func AdviceOf(err error) string {
	if f := (*console.Failure)(nil); errors.As(err, &f) && f.Advice != "" {
		return f.Advice
	}
	e, u, n, m := (*client.Error)(nil), (*client.Unreachable)(nil), (*client.NoApp)(nil), (*client.Missing)(nil)
	switch {
	case errors.As(err, &u):
		return adviceUnreachable(err, u)
	case errors.As(err, &e):
		return adviceForError(e)
	case errors.As(err, &n):
		return "To list the apps: dew apps"
	case errors.As(err, &m):
		return "To list the " + m.Kind + "s: " + listOfKind(m.Kind)
	default:
		return ""
	}
}

// listOfKind is the command that lists resources of a kind.
func listOfKind(kind string) string {
	switch kind {
	case "service instance":
		return "dew services"
	case "service offering", "service plan":
		return "dew marketplace"
	}
	return "dew " + strings.ReplaceAll(kind, " ", "-") + "s"
}

// adviceUnreachable is the advice for a daemon that cannot be reached.
func adviceUnreachable(err error, u *client.Unreachable) string {
	authority, name := (*tls.CertificateVerificationError)(nil), x509.HostnameError{}
	switch remote := strings.Contains(u.Address, "://"); {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "The daemon uses plain HTTP. Use a URL that starts with http://"
	case errors.As(err, &name):
		return "The certificate of the daemon is for another host name. Use that name in the URL"
	case errors.As(err, &authority):
		return "To trust the certificate authority of the daemon: dew login URL --ca-cert FILE"
	case errors.Is(err, fs.ErrPermission):
		return "Only root and the group dew can use the socket. Join the group dew, or use sudo"
	case remote:
		return "Check that the daemon is running and that the URL is right. To use the daemon of this machine again: dew api --unset"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return adviceWithoutDaemon(u.Address, client.Daemons())
	default:
		return "See the log of dewd"
	}
}

// adviceWithoutDaemon is the advice if no daemon listens on the socket: use one that
// was found elsewhere, or start one.
func adviceWithoutDaemon(socket string, found []string) string {
	const most = 3
	var lines []string
	for _, run := range found {
		if run != filepath.Dir(socket) && len(lines) < most {
			lines = append(lines, "A daemon is running at "+run+". To use it: export DEW_RUN="+run)
		}
	}
	if len(lines) > 0 {
		return strings.Join(lines, "\n     ")
	}
	return "dewd is not running. Start it: systemctl start dew (if installed), make run (in a checkout), or dewd (as root)"
}

// adviceForError is the advice for an error that the daemon answered.
func adviceForError(e *client.Error) string {
	switch {
	case e.Status == http.StatusUnauthorized:
		return "Log in: dew login. Only the socket works without a login"
	case e.Title == "CF-FeatureDisabled":
		return "An administrator can enable it with dew enable-feature-flag. To list the feature flags: dew feature-flags"
	case e.Status == http.StatusForbidden:
		return "You need another role, or an administrator must do it. dew space-users and dew org-users show who has which role"
	case strings.Contains(e.Detail, "Service instance '") && strings.Contains(e.Detail, "not found"):
		return "To list the service instances: dew services. To create one: dew create-service"
	case e.Status == http.StatusNotFound && e.Detail == v3.DetailUnknownRequest:
		return "The daemon does not have this endpoint, or serves it only on its socket. On the machine of the daemon, use dew --run FOLDER"
	default:
		return ""
	}
}
