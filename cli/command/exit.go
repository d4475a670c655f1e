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
		return adviceOfAnswer(e)
	case errors.As(err, &n):
		return "dew apps lists the apps there are"
	case errors.As(err, &m):
		return listOfKind(m.Kind) + " lists those that you may see"
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
		return "it speaks plain HTTP: write http:// before its name"
	case errors.As(err, &name):
		return "its certificate is for another name"
	case errors.As(err, &authority):
		return "trust its authority with dew login URL --ca-cert FILE"
	case errors.Is(err, fs.ErrPermission):
		return "the socket is for root and the group dew: join that group, or use sudo"
	case remote:
		return "is it running, and is the address right? dew api --unset goes back to the daemon of this machine"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return adviceWithoutDaemon(u.Address, client.Daemons())
	default:
		return "dewd's own log says more"
	}
}

// adviceWithoutDaemon is the advice if no daemon listens on the socket: use one that
// was found elsewhere, or start one.
func adviceWithoutDaemon(socket string, found []string) string {
	const most = 3
	var lines []string
	for _, run := range found {
		if run != filepath.Dir(socket) && len(lines) < most {
			lines = append(lines, "found a daemon at "+run+": export DEW_RUN="+run)
		}
	}
	if len(lines) > 0 {
		return strings.Join(lines, "\n     ")
	}
	return "no dewd is running. Start one: systemctl start dew if it is installed, make run in a checkout, or dewd as root"
}

// adviceOfAnswer is the advice for an error that the daemon answered.
func adviceOfAnswer(e *client.Error) string {
	switch {
	case e.Status == http.StatusUnauthorized:
		return "dew login lets you in; only the socket can be asked without a token"
	case e.Title == "CF-FeatureDisabled":
		return "an administrator switches it on with dew enable-feature-flag; dew feature-flags lists what can be"
	case e.Status == http.StatusForbidden:
		return "it takes another role, or an administrator: dew space-users and dew org-users show who has which"
	case strings.Contains(e.Detail, "Service instance '") && strings.Contains(e.Detail, "not found"):
		return "dew services lists those that there are, dew create-service makes one"
	case e.Status == http.StatusNotFound && e.Detail == v3.DetailUnknownRequest:
		return "this daemon does not know the call, or answers it over its own socket only: dew --run FOLDER on its machine"
	default:
		return ""
	}
}
