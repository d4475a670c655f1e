package probe

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const onSecrets = "Secrets"

// The last of these probes look for secrets in everything that the others left behind.
func secretAttacks() []attack {
	s := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onSecrets, Name: name, Want: want}, run}
	}
	return []attack{
		s("read files of dewd as another user of the machine", "only the pid of dewd, and no secret, can be read", otherUser),
		s("use the socket of dewd as another user of the machine", "permission denied", otherUserSocket),
		s("find secrets in the list of processes", "no argument has one", processList),
		s("find secrets in audit events", "the events hide the values", events),
		s("find secrets in the log of dewd, with level debug", "no line has one", dewdLog),
		s("find secrets in metrics, status and the OpenAPI description", "no answer has one", statusPages),
	}
}

// nobodyID is a user of the machine without any permission.
const nobodyID = 65534

// asNobody runs a program as that user.
func asNobody(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func otherUser(w *target) (string, error) {
	for _, p := range []string{"dew.db", "keys", "admin-password", "logs", "packages", "droplets"} {
		path := filepath.Join(w.Root, p)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if out, err := asNobody("cat", path); err == nil || !strings.Contains(out, "ermission denied") {
			return out, fmt.Errorf("%s can be opened", p)
		}
	}
	// find reports what it could not enter, and prints what it can read.
	out, err := exec.Command("setpriv", "--reuid", fmt.Sprint(nobodyID), "--regid", fmt.Sprint(nobodyID), "--clear-groups", "find", w.Root, w.Run, "-type", "f", "-readable").Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return "", err
	}
	n := 0
	for file := range strings.FieldsSeq(string(out)) {
		switch {
		case filepath.Base(file) == "dewd.pid":
			n++
		case filepath.Dir(file) == filepath.Join(w.Run, "netns"): // a name, which only root can enter
		default:
			return file, errors.New("another user can read the file")
		}
	}
	if n != 1 {
		return string(out), errors.New("the pid of dewd cannot be read, so the probe proves nothing")
	}
	return "dewd.pid", nil
}

func otherUserSocket(w *target) (string, error) {
	cmd := exec.Command("curl", "-sS", "--max-time", "20", "--unix-socket", filepath.Join(w.Run, "dew.sock"), "http://dew/v3/apps")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(out), "resources") {
		return string(out), errors.New("the socket answers")
	}
	return "permission denied", nil
}

// processList reads the arguments of all processes, as ps does.
func processList(*target) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has exited
		}
		n++
		if bytes.Contains(b, []byte(canary)) {
			return strings.ReplaceAll(string(b), "\x00", " "), errors.New("a process has a secret in its arguments")
		}
	}
	if n == 0 {
		return "", errors.New("no process is visible, so the probe proves nothing")
	}
	return "no argument has one", nil
}

func events(w *target) (string, error) {
	dev := w.insiders["SpaceDeveloper"].token
	if a, err := w.ask(dev, http.MethodPatch, "/v3/apps/"+w.victim.app+"/environment_variables", `{"var":{"NEWKEY":"`+canary+`-new"}}`); err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("cannot set a variable: %w", err)
	}
	a, err := w.ask(w.admin, http.MethodGet, "/v3/audit_events?per_page=5000", "")
	if err != nil {
		return "", err
	}
	if !strings.Contains(a.body, "PRIVATE DATA HIDDEN") || !strings.Contains(a.body, w.insiders["SpaceDeveloper"].name) {
		return "no event", errors.New("the change has no event, so the probe proves nothing")
	}
	if i := strings.Index(a.body, canary); i >= 0 {
		return a.body[max(0, i-200) : i+50], errors.New("an event has a secret")
	}
	return "`[PRIVATE DATA HIDDEN]`", nil
}

func dewdLog(w *target) (string, error) {
	b, err := os.ReadFile(w.LogFile())
	if err != nil {
		return "", err
	}
	secrets := []string{canary, w.admin, w.developer().token, "hush"}
	for _, s := range secrets {
		if i := bytes.Index(b, []byte(s)); i >= 0 {
			return string(b[max(0, i-200):min(len(b), i+50)]), errors.New("the log has a secret")
		}
	}
	if !bytes.Contains(b, []byte(w.victim.app)) {
		return "", errors.New("the log has no line about the app, so the probe proves nothing")
	}
	return "no line has one", nil
}

func statusPages(w *target) (string, error) {
	n := 0
	for _, path := range []string{"/metrics", "/dew/v1/status", "/openapi.json", "/dew/v1/doctor", "/v3/info", "/", "/uaa/info", "/notify/debug/metrics", "/v3/apps", "/v3/service_brokers"} {
		a, err := w.ask(w.admin, http.MethodGet, path, "")
		if err != nil {
			return "", err
		}
		if a.status == http.StatusOK {
			n++
		}
		if strings.Contains(a.body, canary) || strings.Contains(a.body, w.broker.Password+`"`) {
			return a.String(), fmt.Errorf("%s has a secret", path)
		}
	}
	if n < 8 {
		return "", fmt.Errorf("only %d pages answer, so the probe proves nothing", n)
	}
	return fmt.Sprintf("none in %d answers", n), nil
}
