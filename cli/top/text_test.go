package top

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "0B", 0: "0B", 1023: "1023B", 1 << 10: "1K", 1536: "1.5K", 1<<20 - 1: "1M", 64 << 20: "64M", 1023 << 20: "1023M", 1 << 30: "1G", 1288490188: "1.2G", 1 << 62: "4096P",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 1500 * time.Millisecond: "1s", time.Minute: "1m", 63 * time.Second: "1m3s", 2*time.Hour + 14*time.Minute: "2h14m", 76 * time.Hour: "3d4h", 412 * 24 * time.Hour: "412d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	got := []string{percent(0), percent(0.0123), percent(0.9994), percent(0.9996), percent(16), rate(0), rate(0.04), rate(99.94), rate(99.96), rate(12345), rate(1234567), plural(1, "app"), plural(2, "app")}
	want := []string{"0.0%", "1.2%", "99.9%", "100%", "1600%", "0", "0.0", "99.9", "100", "12345", "1235k", "1 app", "2 apps"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFit(t *testing.T) {
	got := []string{fit("shop", 4), fit("shopping", 4), fitEnd("org/space/shop", 6), fitEnd("shop", 4), fit("日本語", 4)}
	want := []string{"shop", "sho…", "…/shop", "shop", "日…"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBar(t *testing.T) {
	got := []string{bar(0, 100, 4), bar(1, 100, 4), bar(50, 100, 4), bar(200, 100, 4), bar(-5, 100, 4)}
	want := []string{"····", "━···", "━━··", "━━━━", "····"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseMachine(t *testing.T) {
	m := parseMachine(strings.NewReader("MemTotal:       8000 kB\nMemFree: 1 kB\n\nMemAvailable:   5000 kB\nOdd: x\n"))
	if m.total != 8000<<10 || m.used != 3000<<10 || m.cores == 0 {
		t.Errorf("%+v", m)
	}
}

// Several spaces and orgs are part of the name of an app.
func TestLabels(t *testing.T) {
	app := func(org, space, name string) v3.LiveApp {
		return v3.LiveApp{GUID: name, Name: name, Space: v3.LiveSpace{GUID: org + space, Name: space, OrgGUID: org, OrgName: org}}
	}
	for _, tt := range []struct {
		apps []v3.LiveApp
		want string
	}{
		{[]v3.LiveApp{app("a", "dev", "shop"), app("a", "dev", "cart")}, "shop"},
		{[]v3.LiveApp{app("a", "dev", "shop"), app("a", "test", "cart")}, "dev/shop"},
		{[]v3.LiveApp{app("a", "dev", "shop"), app("b", "dev", "cart")}, "a/dev/shop"},
	} {
		if got := instanceRows(tt.apps, "")[0].label; got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// During a deployment two instances have the same type and index; their keys differ.
func TestKeysDiffer(t *testing.T) {
	a := v3.LiveApp{GUID: "g", Name: "shop", State: v3.AppStarted, Instances: []v3.LiveInstance{instance("web", 0, 1, 2), instance("web", 0, 1, 2), instance("web", 1, 1, 2)}}
	seen := map[rowKey]bool{}
	for _, r := range (listing{expanded: true}).rows([]v3.LiveApp{a}) {
		if seen[r.key] {
			t.Errorf("%+v occurs twice", r.key)
		}
		seen[r.key] = true
	}
}

func TestScope(t *testing.T) {
	s := sample()
	names := func(sc scope) []string {
		var out []string
		for _, a := range sc.choose(append([]v3.LiveApp{}, s.live.Resources...)) {
			out = append(out, a.Name)
		}
		return out
	}
	got := [][]string{names(scope{apps: []string{"cart", "search"}}), names(scope{org: "other"}), names(scope{org: "local", space: "dev", apps: []string{"cart"}}), names(scope{space: "prod"})}
	if diff := cmp.Diff([][]string{{"cart", "search"}, nil, {"cart"}, nil}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOldDaemon(t *testing.T) {
	err := withoutEndpoint(&client.Error{Status: 404, Detail: v3.DetailUnknownRequest})
	if want := "this dewd is too old for dew top"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	other := &client.Error{Status: 403, Detail: "no"}
	if got := withoutEndpoint(other); !errors.Is(got, other) {
		t.Errorf("%v", got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("shop")
	f.Add("\x1b[31mred\x1b[0m\t\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if r < ' ' || r >= 0x7f && r <= 0x9f {
				t.Errorf("%q has the control character %U", got, r)
			}
		}
		for _, width := range []int{1, 5, 20} {
			if n := textWidth(fit(got, width)); n > width {
				t.Errorf("fit(%q, %d) has %d columns", got, width, n)
			}
		}
	})
}
