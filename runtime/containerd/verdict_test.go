//go:build integration

package containerd

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/testkit"
	"github.com/dewrun/dew/verdict"
)

// Every class of causes is recognised from the facts of a real instance, and the log has
// exactly one exit record and one explanation.
func TestVerdicts(t *testing.T) {
	port := func(timeout time.Duration) app.HealthCheck {
		return app.HealthCheck{Type: app.CheckPort, Timeout: timeout, Interval: time.Second, InvocationTimeout: testkit.Patience}
	}
	tests := []struct {
		name     string
		command  string
		sidecars []app.Sidecar
		check    app.HealthCheck
		signal   syscall.Signal // sent by a user when the instance runs
		class    verdict.Class
		sentence string
	}{
		{name: "error", command: "echo loading; echo config.yml is missing >&2; exit 3", class: verdict.Exited, sentence: "web failed with status 3: config.yml is missing"},
		{name: "output", command: "echo out of paper; exit 3", class: verdict.Exited, sentence: "web failed with status 3; its last line: out of paper"},
		{name: "zero", command: "true", class: verdict.Exited, sentence: "web finished with exit status 0, but it must run until dew stops it"},
		{name: "fault", command: "kill -SEGV $$", class: verdict.Signaled, sentence: "web crashed with SIGSEGV: it accessed memory that it does not have"},
		{name: "killed", command: "kill -KILL $$", class: verdict.Killed, sentence: "web ended with status 137: killed by SIGKILL from an unknown sender, or exited with 137 itself"},
		{name: "onorder", command: "exec sleep 1000", signal: syscall.SIGKILL, class: verdict.KilledByUser, sentence: "web was killed: admin sent it SIGKILL with dew"},
		{
			name: "leaf", command: "exec sleep 1000", sidecars: []app.Sidecar{sidecar("greedy", "exec ./testapp alloc 100", 32)},
			class: verdict.MemoryProcess, sentence: "sidecar greedy ran out of memory: it reached its limit of 32M",
		},
		{
			name: "whole", command: "exec sleep 1000", sidecars: []app.Sidecar{sidecar("greedy", "exec ./testapp alloc 300", 0)},
			class: verdict.MemoryInstance, sentence: "the instance ran out of memory: its processes together reached the limit of 128M",
		},
		{name: "missing", command: "no-such-command --serve", class: verdict.StartFailed, sentence: "web could not start: command no-such-command was not found"},
		{name: "port", command: "exec ./testapp serve 0.0.0.0:3000", check: port(5 * time.Second), class: verdict.StartTimeout, sentence: "the app listens on port 3000, but it must listen on $PORT (8080)"},
		{
			name: "idle", command: "exec ./testapp sleep", check: port(3 * time.Second),
			sidecars: []app.Sidecar{sidecar("other", "exec ./testapp serve 0.0.0.0:3001", 32)},
			class:    verdict.StartTimeout, sentence: "web did not open port 8080 within 3s",
		},
	}
	w := newWorld(t)
	w.policy = supervisor.Policy{KillDelay: time.Second}
	w.boot()
	ps := make([]app.Process, len(tests))
	for i, tt := range tests {
		ps[i] = w.put(testApp{name: fmt.Sprintf("v%d", i), memory: 128, command: tt.command, check: tt.check, sidecars: tt.sidecars})
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := ps[i]
			if tt.signal != 0 {
				w.running(p)
				if err := w.sup.Signal(t.Context(), p.GUID, 0, "", runtime.SentSignal{Number: int(tt.signal), User: "admin"}); err != nil {
					t.Fatal(err)
				}
			}
			r := w.record(p, 1)
			v := r.Verdict(tt.name)
			if v.Class != tt.class || v.Sentence != tt.sentence {
				t.Errorf("got  %s: %s\nwant %s: %s\nrecord %+v", v.Class, v.Sentence, tt.class, tt.sentence, r)
			}
			w.stop(p)
			records, explanations := 0, 0
			for _, l := range w.lines(p.App) {
				if strings.Contains(string(l.Text), string(r.Instance)) && strings.HasPrefix(string(l.Text), "App instance exited") {
					records++
				}
				if l.Source.Type == "CELL" && l.Source.InstanceID == string(r.Instance) && string(l.Text) == r.LogSentence() {
					explanations++
				}
			}
			if records != 1 || explanations != 1 {
				t.Errorf("%d exit records and %d explanations in the log, want one of each", records, explanations)
			}
		})
	}
}
