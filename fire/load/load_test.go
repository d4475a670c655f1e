package load

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

// The follower finds missing, repeated and lost lines.
func TestFollower(t *testing.T) {
	t.Parallel()
	line := func(seq uint64, text string) v3.Line { return v3.Line{Seq: seq, Instance: "i", Text: []byte(text)} }
	nine := func(instance string) (all []v3.Line) {
		for n := range uint64(9) {
			all = append(all, line(n+1, fmt.Sprintf("main %s %d", instance, n+1)))
		}
		return all
	}
	for name, tt := range map[string]struct {
		lines []v3.Line
		want  string
	}{
		"whole":       {[]v3.Line{line(1, "main i 1 x"), line(2, "sidecar i 1"), line(3, "main i 2")}, ""},
		"hole":        {[]v3.Line{line(1, "main i 1"), line(2, "main i 3")}, "printed line 3 after line 1"},
		"double":      {[]v3.Line{line(1, "main i 1"), line(2, "main i 1")}, "printed line 1 after line 1"},
		"lost number": {[]v3.Line{line(1, "main i 1"), line(3, "main i 2")}, "line 3 follows line 1"},
		"gap":         {[]v3.Line{{Seq: 1, Instance: "i", Lost: &v3.Loss{Lines: 4, Cause: logstream.LostDamage}}}, "4 lines of instance i are lost"},
		"old lines":   {[]v3.Line{line(1, "main i 1"), {Seq: 2, Lost: &v3.Loss{Lines: 4, Cause: logstream.LostRetention}}, line(3, "main i 2")}, ""},
		"old missing": {[]v3.Line{line(1, "main i 1"), {Seq: 2, Lost: &v3.Loss{Lines: 4, Cause: logstream.LostRetention}}, line(3, "main i 3")}, "printed line 3 after line 1"},
		"cut":         {append(nine("lost"), line(10, "main lost 1")), ""},
		"not cut":     {append(nine("i"), line(10, "main i 1")), "printed line 1 after line 9"},
		"zeros":       {[]v3.Line{line(1, "main i 1"), {Seq: 2, Instance: "i", Source: "APP/PROC/WEB", Stream: "OUT", Text: make([]byte, 300)}}, "has 300 bytes and no number"},
		"no zeros":    {[]v3.Line{line(1, "main i 1"), {Seq: 2, Instance: "lost", Source: "APP/PROC/WEB", Stream: "OUT", Text: []byte("ma")}}, ""},
		"incomplete":  {[]v3.Line{line(1, "main i 1")}, "printed 2 lines, and the log has 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger()
			l.See(world.Instance{ID: "i", Slot: world.Slot{App: "a"}})
			l.End("lost", Ending{LosesOutput: true})
			f := NewFollower(App{Name: "a"}, l)
			for i := range tt.lines {
				if err := f.line(&tt.lines[i]); err != nil {
					t.Fatal(err)
				}
			}
			if name == "incomplete" {
				l.Print("app", Printer{"i", "main"}, 2)
			}
			got := fmt.Sprint(f.Problems(), f.Missing(l.Printed()))
			if want := tt.want; want == "" && got != "[] <nil>" || !strings.Contains(got, want) {
				t.Errorf("problems = %s, want %q", got, want)
			}
		})
	}
}

// An instance that survives a fault must end as the next fault says, or as the first.
func TestEndings(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	l.End("i", Ending{Cause: []string{"capture_failed"}, Maybe: true, LosesOutput: true})
	l.End("i", Ending{Cause: []string{"exited"}})
	l.End("i", Ending{Cause: []string{"ignored"}})
	if got := l.Endings()["i"]; fmt.Sprint(got.Cause) != "[exited capture_failed]" || got.Maybe || !got.LosesOutput || !got.AnyProcess {
		t.Errorf("ending = %+v", got)
	}
}

// An instance that is seen for the first time during a fault can end because of it.
func TestStarting(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	see := func(id string) { l.See(world.Instance{ID: id, Slot: world.Slot{App: "a"}}) }
	see("before")
	over := l.Starting(Ending{Cause: []string{"start_failed"}, Maybe: true})
	see("before")
	see("during")
	over()
	see("after")
	if got := l.Endings(); len(got) != 1 || !got["during"].Maybe {
		t.Errorf("endings = %+v, want one for the instance that started during the fault", got)
	}
}

// A gate forwards, and resets connections after Set.
func TestGate(t *testing.T) {
	t.Parallel()
	l := testkit.Listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := testkit.Must(NewGate(ctx, l.Addr().String()))(t)
	c := testkit.Open(net.Dial("tcp4", g.Address()))(t)
	b := make([]byte, 5)
	if _, err := c.Read(b); err != nil || string(b) != "hello" {
		t.Errorf("read %q, %v through an open gate", b, err)
	}
	g.Set(Reset)
	if _, err := c.Read(b); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("read from a connection that was reset: %v", err)
	}
}
