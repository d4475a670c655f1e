package route

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// session responds with its name, and starts a session on request.
func session(name string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			http.SetCookie(rw, &http.Cookie{Name: "JSESSIONID", Value: "s", Path: "/", Secure: true, SameSite: http.SameSiteStrictMode, MaxAge: 60})
		case "/logout":
			http.SetCookie(rw, &http.Cookie{Name: "JSESSIONID", Path: "/", MaxAge: -1})
		case "/own":
			http.SetCookie(rw, &http.Cookie{Name: "JSESSIONID", Value: "s"})
			http.SetCookie(rw, &http.Cookie{Name: stickyCookie, Value: "mine"})
		}
		fmt.Fprint(rw, name)
	})
}

func vcapID(res *http.Response) *http.Cookie {
	for _, c := range res.Cookies() {
		if c.Name == stickyCookie {
			return c
		}
	}
	return nil
}

// A client with a session returns to the instance that holds it. If another instance
// takes over, the client gets a new cookie.
func TestStickySessions(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	for i := range 3 {
		w.instance("a", i, session(fmt.Sprint(i)))
	}
	if res, _ := w.get("shop", "/"); vcapID(res) != nil {
		t.Errorf("cookie without a session: %v", vcapID(res))
	}
	res, here := w.get("shop", "/login")
	c := vcapID(res)
	if c == nil || c.Value != "a-"+here || c.Path != "/" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 60 {
		t.Fatalf("cookie of instance %s = %v", here, c)
	}
	again := func(path string, names ...string) (*http.Response, string) {
		req := w.request(http.MethodGet, "shop", path, nil)
		for _, n := range names {
			v := "s"
			if n == stickyCookie {
				v = c.Value
			}
			req.AddCookie(&http.Cookie{Name: n, Value: v})
		}
		return w.do(req)
	}
	for range 10 {
		res, got := again("/", "JSESSIONID", stickyCookie)
		if got != here || vcapID(res) != nil {
			t.Fatalf("went to %s with cookie %v, want %s and none", got, vcapID(res), here)
		}
	}
	var went []string
	for range 9 {
		_, got := again("/", stickyCookie) // without the app's own cookie there is no session
		went = append(went, got)
	}
	if slices.Sort(went); len(slices.Compact(went)) != 3 {
		t.Errorf("a client without a session went to %v", went)
	}
	if res, _ := again("/logout", "JSESSIONID", stickyCookie); vcapID(res) == nil || vcapID(res).MaxAge >= 0 {
		t.Errorf("cookie at the end = %v", vcapID(res))
	}
	if res, _ := again("/own", "JSESSIONID", stickyCookie); vcapID(res) == nil || vcapID(res).Value != "mine" {
		t.Errorf("the app's own cookie = %v", vcapID(res))
	}
	w.router.Changed(crashed("a", int(here[0]-'0')))
	res, there := again("/", "JSESSIONID", stickyCookie)
	if there == here || vcapID(res) == nil || vcapID(res).Value != "a-"+there {
		t.Errorf("went to %s with cookie %v", there, vcapID(res))
	}
}

// X-CF-App-Instance selects that instance or none.
func TestRequestedInstance(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	for i := range 3 {
		w.instance("a", i, says(fmt.Sprint(i)))
	}
	w.refuses("a", 3)
	for _, c := range []struct {
		header, body string
		status       int
		name         string
	}{
		{"a:0", "0", 200, ""},
		{"a:2", "2", 200, ""},
		{"a:3", endpointFailure.text, 502, "endpoint_failure"},
		{"a:4", noInstance.text, 404, "unknown_route"},
		{"b:0", noInstance.text, 404, "unknown_route"},
		{"a", badInstance.text, 400, "invalid_cf_app_instance_header"},
		{":1", badInstance.text, 400, "invalid_cf_app_instance_header"},
		{"a:x", badInstance.text, 400, "invalid_cf_app_instance_header"},
		{"a:-1", badInstance.text, 400, "invalid_cf_app_instance_header"},
	} {
		for range 3 {
			req := w.request(http.MethodGet, "shop", "/", nil)
			req.Header.Set("X-CF-App-Instance", c.header)
			res, body := w.do(req)
			if res.StatusCode != c.status || body != c.body || res.Header.Get("X-Cf-RouterError") != c.name {
				t.Errorf("%s: %d %q %q, want %d %q %q", c.header, res.StatusCode, res.Header.Get("X-Cf-RouterError"), body, c.status, c.name, c.body)
			}
		}
	}
}

// Other cookies can be configured as session cookies.
func TestOtherStickyCookies(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.router.sticky = []string{"SID"}
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.SetCookie(rw, &http.Cookie{Name: strings.TrimPrefix(r.URL.Path, "/"), Value: "s"})
	}))
	if res, _ := w.get("shop", "/SID"); vcapID(res) == nil {
		t.Error("no cookie beside SID")
	}
	if res, _ := w.get("shop", "/JSESSIONID"); vcapID(res) != nil {
		t.Error("a cookie beside JSESSIONID")
	}
}

func TestDropConsoleCookie(t *testing.T) {
	for _, tt := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"a=1; b=2"}, []string{"a=1; b=2"}},
		{[]string{"dew_console=x"}, nil},
		{[]string{"dew_login=x; a=1; dew_login_form=y"}, []string{"a=1"}},
		{[]string{"__Host-dew_login=x; a=1; __Host-dew_login_form=y; __Host-app=z"}, []string{"a=1; __Host-app=z"}},
		{[]string{"a=1; dew_console=x; b=2"}, []string{"a=1; b=2"}},
		{[]string{"dew_console=x; b=2", "c=3;dew_console=y"}, []string{"b=2", "c=3"}},
		{[]string{"my_dew_console=x;  b=2"}, []string{"my_dew_console=x;  b=2"}},
	} {
		h := http.Header{}
		if tt.in != nil {
			h["Cookie"] = slices.Clone(tt.in)
		}
		if dropOwnCookies(h); !slices.Equal(h["Cookie"], tt.want) {
			t.Errorf("%q = %q, want %q", tt.in, h["Cookie"], tt.want)
		}
	}
}

// X-CF-Process-Instance selects a process or one of its instances. During a deployment
// the guid of the process stands for its old instances.
func TestRequestedProcess(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	for i := range 2 {
		w.instance("a", i, says(fmt.Sprint(i)))
	}
	ask := func(header string) (int, string, string) {
		req := w.request(http.MethodGet, "shop", "/", nil)
		req.Header.Set("X-CF-Process-Instance", header)
		res, body := w.do(req)
		return res.StatusCode, res.Header.Get("X-Cf-RouterError"), body
	}
	process := ready("a", 0).Slot.Process
	seen := map[string]bool{}
	for range 4 {
		status, _, body := ask(process)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		seen[body] = true
	}
	if len(seen) != 2 {
		t.Errorf("the requests of a process went to %v, want all of its instances", seen)
	}
	for header, want := range map[string]string{
		process + ":1": "200  1", process + ":0": "200  0", process + ".0:1": "200  1",
		process + ":7": "404 unknown_route " + noInstance.text, "other": "404 unknown_route " + noInstance.text, process + ".3": "404 unknown_route " + noInstance.text,
		":1": "400 invalid_cf_process_instance_header " + badProcess.text, process + ":x": "400 invalid_cf_process_instance_header " + badProcess.text,
		process + ":-1": "400 invalid_cf_process_instance_header " + badProcess.text,
	} {
		for range 2 {
			status, name, body := ask(header)
			if got := fmt.Sprintf("%d %s %s", status, name, body); got != want {
				t.Errorf("%s: %q, want %q", header, got, want)
			}
		}
	}
	canary := ready("a", 5)
	canary.Slot.Generation, canary.Slot.Index = 1, 0
	s := httptest.NewServer(says("new"))
	t.Cleanup(s.Close)
	w.mu.Lock()
	w.hosts[canary.Instance] = s.Listener.Addr().String()
	w.mu.Unlock()
	w.router.Changed(canary)
	for header, want := range map[string]string{process + ".1": "new", process + ".1:0": "new", process + ":0": "0", process + ".0:0": "0"} {
		for range 4 {
			if _, _, body := ask(header); body != want {
				t.Errorf("%s went to %s during a deployment, want %s", header, body, want)
			}
		}
	}
}

// A route without ready instances can look like one that does not exist.
func TestEmptyRouteStatus(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	if res, _ := w.get("shop", "/"); res.StatusCode != 503 || res.Header.Get("X-Cf-RouterError") != "no_endpoints" {
		t.Errorf("%d %s, want 503 no_endpoints", res.StatusCode, res.Header.Get("X-Cf-RouterError"))
	}
	w.router.c.EmptyIsUnknown = true
	if res, _ := w.get("shop", "/"); res.StatusCode != 404 || res.Header.Get("X-Cf-RouterError") != "unknown_route" {
		t.Errorf("%d %s, want 404 unknown_route", res.StatusCode, res.Header.Get("X-Cf-RouterError"))
	}
}
