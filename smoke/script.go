package smoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxOutput is how much of a script's last output is stored.
const maxOutput = 64 << 10

// script is a shell script.
type script struct {
	text string
	dir  string
	env  []string
	show io.Writer // receives its output; can be nil
}

// run runs the script until it exits. If ctx is done, it kills the script with all its
// children.
func (s script) run(ctx context.Context) error {
	var out tailBuffer
	cmd := exec.CommandContext(ctx, "sh", "-euc", s.text)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.Stdout = io.Writer(&out)
	if s.show != nil {
		cmd.Stdout = io.MultiWriter(&out, s.show)
	}
	cmd.Stderr = cmd.Stdout // the same writer, so that exec allows only one write at a time
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // for processes that have left the group and hold the pipe
	err := cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the script did not finish in time: %w", ctx.Err())
	} else if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("the script failed: %s", exit.ProcessState)
	}
	return &Failure{Status: StatusFailed, Err: err, Output: out.String()}
}

// script runs a check script of the folder.
func (c *checker) script(ctx context.Context, text string, a subject) error {
	env := append(append([]string{}, c.env...), "APP="+a.name)
	if routes, err := c.client.Routes().OfApp(ctx, a.guid); err == nil {
		if host := hostFor(routes, a.guid, 0); host != "" {
			env = append(env, "APP_URL=http://"+host+c.routerPort())
		}
	}
	err := script{text: text, dir: c.dir, env: env}.run(ctx)
	f := (*Failure)(nil)
	if !errors.As(err, &f) {
		return err
	}
	about := "the script printed nothing"
	if text := strings.TrimSpace(f.Output); text != "" {
		about = "the output ends with " + quotedEnd(text)
	}
	return &Failure{Status: StatusAssertion, Err: &mismatch{err: f.Err, about: about}, Output: f.Output}
}

// routerPort is the port after the name of a route in an address.
func (c *checker) routerPort() string {
	if i := strings.LastIndexByte(c.router, ':'); i >= 0 && c.router[i:] != ":80" {
		return c.router[i:]
	}
	return ""
}

// tailBuffer stores the last bytes that are written to it.
type tailBuffer struct {
	kept []byte
	cut  bool
}

func (t *tailBuffer) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if n := len(t.kept) - maxOutput; n > maxOutput {
		t.kept, t.cut = append([]byte{}, t.kept[n:]...), true
	}
	return len(b), nil
}

func (t *tailBuffer) String() string {
	if n := len(t.kept) - maxOutput; n > 0 {
		t.kept, t.cut = t.kept[n:], true
	}
	if t.cut {
		return "…" + string(t.kept)
	}
	return string(t.kept)
}
