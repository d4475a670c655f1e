package route

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/app"
)

const (
	// instanceHeader selects one instance: <app guid>:<index>.
	instanceHeader = "X-Cf-App-Instance"
	// processHeader selects a process or one of its instances: <process guid>[:<index>].
	// During a deployment, the new instances have a process guid of their own.
	processHeader = "X-Cf-Process-Instance"
	// stickyCookie names the instance that holds a client's session.
	stickyCookie = "__VCAP_ID__"
	// sessionCookie is the session cookie of apps.
	sessionCookie = "JSESSIONID"
)

var (
	badInstance = failure{http.StatusBadRequest, "invalid_cf_app_instance_header", "400 Bad Request: X-CF-App-Instance must have the form APP_GUID:INDEX.\n", "no-store"}
	badProcess  = failure{http.StatusBadRequest, "invalid_cf_process_instance_header", "400 Bad Request: X-CF-Process-Instance must have the form PROCESS_GUID or PROCESS_GUID:INDEX.\n", "no-store"}
	noInstance  = failure{http.StatusNotFound, "unknown_route", "404 Not Found: Requested instance does not exist for this route.\n", "no-cache, no-store"}
)

// pin checks whether the client selects one instance, by header or by session cookie.
// The header is mandatory. The cookie is not, because the session may have to continue
// on another instance. It returns false if the selected instance is not available.
func (x *exchange) pin(req *http.Request) (failure, bool) {
	if v := req.Header.Get(instanceHeader); v != "" {
		return x.pinInstance(v)
	}
	if v := req.Header.Get(processHeader); v != "" {
		return x.pinProcess(v)
	}
	if len(req.Header["Cookie"]) == 0 {
		return failure{}, true
	}
	if !slices.ContainsFunc(x.router.sticky, func(name string) bool { _, err := req.Cookie(name); return err == nil }) {
		return failure{}, true
	}
	if c, err := req.Cookie(stickyCookie); err == nil {
		x.session = c.Value
	}
	return failure{}, true
}

func (x *exchange) pinInstance(v string) (failure, bool) {
	guid, index, ok := strings.Cut(v, ":")
	n, err := strconv.Atoi(index)
	if !ok || guid == "" || err != nil || n < 0 {
		return badInstance, false
	}
	t, ok := x.entry.find(func(ep *endpoint) bool { return ep.process.app == guid && ep.slot.Index == n })
	if !ok {
		return noInstance, false
	}
	x.only = &t
	return failure{}, true
}

// pinProcess limits the request to the instances of a process, or to one of them.
func (x *exchange) pinProcess(v string) (failure, bool) {
	guid, index, one := strings.Cut(v, ":")
	n, err := strconv.Atoi(index)
	if guid == "" || one && (err != nil || n < 0) {
		return badProcess, false
	}
	process, generation, exact := app.SplitGeneration(guid)
	newest, several := x.entry.generations(process)
	wanted := func(ep *endpoint) bool {
		switch {
		case ep.slot.Process != process || one && ep.slot.Index != n:
			return false
		case exact:
			return ep.slot.Generation == generation
		}
		return !several || ep.slot.Generation != newest // the newest are those of the deployment
	}
	if _, ok := x.entry.find(wanted); !ok {
		return noInstance, false
	}
	x.wanted = wanted
	return failure{}, true
}

// next returns the next instance to try, or false if there is none.
func (x *exchange) next(request http.Header) (target, bool) {
	if x.only != nil {
		return *x.only, len(x.tried) == 0
	}
	if x.wanted != nil {
		return x.entry.pickAmong(x.tried, x.wanted)
	}
	if x.session != "" && len(x.tried) == 0 {
		if t, ok := x.entry.find(func(ep *endpoint) bool { return string(ep.instance) == x.session }); ok {
			return t, true
		}
	}
	if x.serviceEntry != nil {
		return x.serviceEntry.pickFor(request, x.tried)
	}
	return x.entry.pickFor(request, x.tried)
}

// setStickyCookie tells the client which instance holds its session: when the app
// starts one, and when it continued on another instance. The cookie lasts as long as
// the app's.
func (x *exchange) setStickyCookie(res *http.Response) {
	here := string(x.target.endpoint.instance)
	own := http.Cookie{Name: stickyCookie, Value: here, Path: "/", HttpOnly: true}
	set := x.session != "" && x.session != here
	if len(res.Header["Set-Cookie"]) > 0 {
		for _, c := range res.Cookies() {
			if c.Name == stickyCookie {
				return // the app's own cookie has priority
			}
			if !slices.Contains(x.router.sticky, c.Name) {
				continue
			}
			set = true
			own.Secure, own.SameSite, own.Partitioned = c.Secure, c.SameSite, c.Partitioned
			own.Expires, own.MaxAge = c.Expires, c.MaxAge
		}
	}
	if set {
		res.Header.Add("Set-Cookie", own.String())
	}
}

// ownCookies are the cookies of the web console and of the login page. Browsers send
// them to all ports of a host name, and apps must not get them.
var ownCookies = []string{"dew_console=", "dew_login=", "dew_login_form=", "__Host-dew_login=", "__Host-dew_login_form="}

// dropOwnCookies removes the cookies of dew, and leaves all others as they are.
func dropOwnCookies(h http.Header) {
	if !slices.ContainsFunc(h["Cookie"], func(line string) bool { return strings.Contains(line, "dew_") }) {
		return
	}
	var lines []string
	for _, line := range h["Cookie"] {
		parts := slices.DeleteFunc(strings.Split(line, ";"), func(part string) bool {
			return slices.ContainsFunc(ownCookies, func(own string) bool { return strings.HasPrefix(strings.TrimSpace(part), own) })
		})
		if line = strings.TrimSpace(strings.Join(parts, ";")); line != "" {
			lines = append(lines, line)
		}
	}
	if h.Del("Cookie"); len(lines) > 0 {
		h["Cookie"] = lines
	}
}
