package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

func TestExplain(t *testing.T) {
	for want, found := range map[string][]string{
		"dewd is not running. Start it: systemctl start dew (if installed), make run (in a checkout), or dewd (as root)":                                                                      {"/run/dew"},
		"A daemon is running at /run/dew-1. To use it: export DEW_RUN=/run/dew-1":                                                                                                             {"/run/dew", "/run/dew-1"},
		"A daemon is running at /a. To use it: export DEW_RUN=/a\n     A daemon is running at /b. To use it: export DEW_RUN=/b\n     A daemon is running at /c. To use it: export DEW_RUN=/c": {"/a", "/b", "/c", "/d"},
	} {
		if got := adviceWithoutDaemon("/run/dew/dew.sock", found); got != want {
			t.Errorf("%v: %q, want %q", found, got, want)
		}
	}
	for err, text := range map[error]string{
		&client.Unreachable{Err: fs.ErrPermission}:                "group dew",
		&client.Unreachable{Err: syscall.ECONNREFUSED}:            adviceWithoutDaemon("", client.Daemons()),
		&client.Unreachable{Err: syscall.ECONNRESET}:              "the log of dewd",
		&client.Error{Status: 401, Detail: "not you"}:             "without a login",
		&client.Error{Status: 403, Title: "CF-FeatureDisabled"}:   "dew enable-feature-flag",
		&client.Error{Status: 403, Detail: "not this"}:            "another role",
		&client.NoApp{Name: "x"}:                                  "dew apps",
		&console.Failure{Status: 5, Err: errBroken, Advice: "go"}: "go",
	} {
		if got := Explain(err); !strings.Contains(got, text) {
			t.Errorf("%q is missing in %q", text, got)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errBroken, 1},
		{console.UsageError("x"), 2},
		{&console.Failure{Status: 7, Err: errBroken}, 7},
		{&client.Unreachable{Err: errBroken}, 6},
		{context.DeadlineExceeded, 5},
		{&client.Error{Status: 422}, 1},
	} {
		if got := StatusOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestExitStatusOfAnInterruption(t *testing.T) {
	for _, c := range []struct {
		err, cause error
		want       int
	}{
		{nil, nil, 0},
		{context.Canceled, nil, 1},
		{fmt.Errorf("push: %w", context.Canceled), errors.New("interrupt signal received"), 130},
		{context.Canceled, errors.New("terminated signal received"), 143},
		{nil, errors.New("interrupt signal received"), 0},
		{&console.Failure{Status: console.StatusStaging, Err: errors.New("x")}, errors.New("interrupt signal received"), console.StatusStaging},
	} {
		if got := ExitStatus(c.err, c.cause); got != c.want {
			t.Errorf("exitStatus(%v, %v) = %d, want %d", c.err, c.cause, got, c.want)
		}
	}
}
