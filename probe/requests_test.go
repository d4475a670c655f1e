package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const onRequests = "Requests"

func requestAttacks() []attack {
	r := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onRequests, Name: name, Want: want}, run}
	}
	return []attack{
		r("send Content-Length and Transfer-Encoding to the router", "status 400; the app gets no second request", smuggle(
			"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX")),
		r("hide Transfer-Encoding from one of two servers", "status 400 or 501; the app gets no second request", smuggle(
			"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
			"X: x\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n")),
		r("send two lengths, or a length that is not a number", "status 400; the app gets no second request", smuggle(
			"Content-Length: 0\r\nContent-Length: 44\r\n\r\n", "Content-Length: +0\r\n\r\n", "Content-Length: 0x0\r\n\r\n", "Content-Length: 0,44\r\n\r\n", "Content-Length: -1\r\n\r\n")),
		r("send chunks with an unclear size", "an error; the app gets no second request", smuggleBody(
			"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\n\n", "Transfer-Encoding: chunked\r\n\r\n-0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1\r\nXX\r\n0\r\n\r\n")),
		r("put line ends and zero bytes into headers", "status 400", smuggle("X: a\rb\r\n\r\n", "X: a\x00b\r\n\r\n", " folded: x\r\n\r\n", "X: a\r\n folded\r\n\r\n", ": empty\r\n\r\n")),
		r("smuggle over an upgrade to h2c", "the router does not forward the upgrade", upgrade),
		r("forge X-Forwarded-For, -Proto, -Client-Cert and X-CF headers", "the app sees the values of the router", forgedHeaders),
		r("remove headers of the router with Connection", "the app sees the headers", hopByHop),
		r("reach an instance of another app with X-CF-App-Instance", "status 400 or 404, never the other app", otherInstance),
		r("name another app in the URL and in Host", "one app is chosen, and it sees that name", absoluteURL),
		r("send headers beyond the limit", "status 431", oversized),
		r("call the API with a foreign Host or Origin (DNS rebinding, CSRF)", "status 403 or 421", foreignHost),
		r("poison links of the API with X-Forwarded-Host", "the links have the address of dewd", poisonedLinks),
		r("reach dewd's own paths through the host of an app", "the app answers, not dewd", ownPaths),
		r("use path tricks at the API (..; // %2e %2f)", "an error, a redirect, or the page of the console", pathTricks),
		r("send JSON with duplicate keys, deep nesting and wrong UTF-8", "status 400 or 422", badJSON),
	}
}

// hidden is the request that an attacker hides in another one.
const hiddenRequest = "GET /hidden HTTP/1.1\r\nHost: victim.dew.localhost\r\n\r\n"

// smuggle sends requests whose head is not clear, followed by another request.
func smuggle(rests ...string) func(w *target) (string, error) {
	return smuggled(func(status int) bool { return status == http.StatusBadRequest || status == http.StatusNotImplemented }, rests)
}

// smuggleBody sends requests whose body is not clear. A server that does not need the
// body can answer with another error first.
func smuggleBody(rests ...string) func(w *target) (string, error) {
	return smuggled(func(status int) bool { return status >= http.StatusBadRequest }, rests)
}

func smuggled(refused func(status int) bool, rests []string) func(w *target) (string, error) {
	return func(w *target) (string, error) {
		var codes []int
		for to, host := range map[string]string{w.Router: "attacker.dew.localhost", w.API: w.API} {
			for _, rest := range rests {
				got, err := raw(to, "POST /first HTTP/1.1\r\nHost: "+host+"\r\n"+rest+hiddenRequest)
				if err != nil {
					return "", err
				}
				var status int
				if _, err := fmt.Sscanf(got, "HTTP/1.1 %d", &status); err != nil {
					return got, fmt.Errorf("%q: no answer: %w", rest, err)
				}
				codes = append(codes, status)
				if !refused(status) || strings.Contains(got, "/hidden") || strings.Count(got, "HTTP/1.1 ") != 1 {
					return got, fmt.Errorf("%q at %s", rest, to)
				}
			}
		}
		return statuses(codes), nil
	}
}

// seenByApp is a request as the app sees it.
type seenByApp struct {
	App, Method, URI, Host string
	Header                 http.Header
}

// echo sends a request to the app of the attacker, with other headers.
func (w *target) echo(host, path string, change func(r *http.Request)) (seenByApp, answer, error) {
	var seen seenByApp
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.Router+path, http.NoBody)
	if err != nil {
		return seen, answer{}, err
	}
	r.Host = host
	if change != nil {
		change(r)
	}
	a, err := send(r)
	if err == nil && a.status == http.StatusOK {
		err = json.Unmarshal([]byte(a.body), &seen)
	}
	return seen, a, err
}

func upgrade(w *target) (string, error) {
	got, err := raw(w.Router, "GET /first HTTP/1.1\r\nHost: attacker.dew.localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"+hiddenRequest)
	if err != nil {
		return "", err
	}
	if strings.Contains(got, " 101 ") || strings.Contains(got, "/hidden") || strings.Contains(got, "Http2-Settings") || strings.Contains(got, `"Upgrade"`) {
		return got, errors.New("the upgrade is forwarded")
	}
	line, _, _ := strings.Cut(got, "\r\n")
	return line, nil
}

func forgedHeaders(w *target) (string, error) {
	seen, a, err := w.echo("attacker.dew.localhost", "/", func(r *http.Request) {
		for _, name := range []string{"X-Forwarded-Client-Cert", "X-CF-Proxy-Signature", "X-CF-Proxy-Metadata", "X-CF-Forwarded-Url"} {
			r.Header.Set(name, "forged")
		}
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		r.Header.Set("X-CF-ApplicationID", "forged")
		r.Header.Set("X-CF-InstanceId", "forged")
		r.Header.Set("X-Vcap-Request-Id", "forged")
	})
	if err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("no answer: %w", err)
	}
	for name, values := range seen.Header {
		if strings.Contains(strings.Join(values, ""), "forged") {
			return name, errors.New("the app sees a forged header")
		}
	}
	if got := seen.Header.Get("X-Forwarded-For"); !strings.HasSuffix(got, "127.0.0.1") {
		return got, errors.New("the app does not see the address of the client")
	}
	if got := seen.Header.Get("X-CF-ApplicationID"); got != w.attacker.app {
		return got, errors.New("the app sees another guid")
	}
	return "X-Forwarded-For: " + seen.Header.Get("X-Forwarded-For") + ", no forged value", nil
}

func hopByHop(w *target) (string, error) {
	seen, a, err := w.echo("attacker.dew.localhost", "/", func(r *http.Request) {
		r.Header.Set("Connection", "close, X-Forwarded-For, X-Forwarded-Proto, X-Vcap-Request-Id, X-CF-ApplicationID, X-CF-InstanceId")
	})
	if err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("no answer: %w", err)
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Vcap-Request-Id", "X-CF-ApplicationID", "X-CF-InstanceId"} {
		if seen.Header.Get(name) == "" {
			return fmt.Sprint(seen.Header), fmt.Errorf("%s is removed", name)
		}
	}
	return "all 5 headers", nil
}

func otherInstance(w *target) (string, error) {
	var codes []int
	for _, value := range []string{w.victim.app + ":0", w.victim.app, ":0", w.victim.app + ":0," + w.attacker.app + ":0", "x:y"} {
		seen, a, err := w.echo("attacker.dew.localhost", "/", func(r *http.Request) { r.Header.Set("X-CF-App-Instance", value) })
		if err != nil {
			return "", err
		}
		codes = append(codes, a.status)
		if seen.App == "victim" || a.status == http.StatusOK {
			return a.String(), fmt.Errorf("%q is forwarded", value)
		}
	}
	return statuses(codes), nil
}

func absoluteURL(w *target) (string, error) {
	got, err := raw(w.Router, "GET http://attacker.dew.localhost/x HTTP/1.1\r\nHost: victim.dew.localhost\r\nConnection: close\r\n\r\n")
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(got, "\r\n")
	if strings.Contains(line, " 400 ") {
		return line, nil
	}
	// RFC 9112: the URL counts, and Host is ignored.
	if !strings.Contains(got, `"app":"attacker"`) || !strings.Contains(got, `"host":"attacker.dew.localhost"`) {
		return got, errors.New("the app sees another host than the router")
	}
	return line + ", host of the URL", nil
}

func oversized(w *target) (string, error) {
	var codes []int
	for _, to := range []string{w.Router, w.API} {
		for _, head := range []string{"X: " + strings.Repeat("x", 4<<20) + "\r\n", strings.Repeat("X: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", 100_000)} {
			status, err := firstStatus(to, "GET / HTTP/1.1\r\nHost: attacker.dew.localhost\r\n"+head+"\r\n")
			if err != nil {
				return "", err
			}
			codes = append(codes, status)
			if status != http.StatusRequestHeaderFieldsTooLarge && status != http.StatusBadRequest {
				return fmt.Sprint(status), errors.New("the headers are accepted")
			}
		}
	}
	return statuses(codes), nil
}

// foreignHost sends requests as a browser does after DNS rebinding, or from another page.
func foreignHost(w *target) (string, error) {
	var codes []int
	for name, value := range map[string]string{"Host": "evil.example.com", "Origin": "https://evil.example.com"} {
		for _, path := range []string{"/v3/apps", "/", "/uaa/oauth/token"} {
			r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.API+path, strings.NewReader("{}"))
			if err != nil {
				return "", err
			}
			r.Header.Set("Authorization", "bearer "+w.developer().token)
			if r.Header.Set(name, value); name == "Host" {
				r.Host = value
			}
			a, err := send(r)
			if err != nil {
				return "", err
			}
			codes = append(codes, a.status)
			if a.status != http.StatusForbidden && a.status != http.StatusMisdirectedRequest {
				return a.String(), fmt.Errorf("%s: %s at %s", name, value, path)
			}
			if got := a.header.Get("Access-Control-Allow-Origin"); got != "" {
				return got, errors.New("other pages can read the answer")
			}
		}
	}
	return statuses(codes), nil
}

func poisonedLinks(w *target) (string, error) {
	for _, path := range []string{"/", "/v3/apps", "/uaa/info", "/uaa/.well-known/openid-configuration"} {
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.API+path, http.NoBody)
		if err != nil {
			return "", err
		}
		r.Header.Set("Authorization", "bearer "+w.developer().token)
		for _, name := range []string{"X-Forwarded-Host", "X-Host", "X-Original-Host", "X-Forwarded-Server", "Forwarded"} {
			r.Header.Set(name, "host=evil.example.com")
		}
		a, err := send(r)
		if err != nil {
			return "", err
		}
		if a.status != http.StatusOK || strings.Contains(a.body+fmt.Sprint(a.header), "evil.example.com") {
			return a.String(), fmt.Errorf("%s repeats the header", path)
		}
	}
	return "200 without the forged host", nil
}

func ownPaths(w *target) (string, error) {
	for _, path := range []string{"/v3/apps", "/uaa/token_keys", "/healthz", "/metrics", "/dew/v1/status", "/notify/info", "/.well-known/acme-challenge/x"} {
		seen, a, err := w.echo("attacker.dew.localhost", path, nil)
		if err != nil {
			return "", err
		}
		if seen.App != "attacker" {
			return a.String(), fmt.Errorf("%s does not reach the app", path)
		}
	}
	return "the app for 7 paths", nil
}

func pathTricks(w *target) (string, error) {
	var codes []int
	for _, path := range []string{
		"//v3/apps", "/v3/../dew/v1/status", "/healthz/../v3/apps", "/healthz;/../dew/v1/status", "/%2e%2e/v3/apps", "/v3%2fapps", "/V3/apps", "/v3/apps/%00", "/openapi.json/../v3/apps", "/uaa/..%2fv3/apps",
		"/v3/apps/../../dew/v1/status", "/console/../dew/v1/status", "/console/..%2f..%2fdew/v1/status", "/dew/v1/downloads/..%2f..%2fkeys", "/dew/v1/downloads/../status",
	} {
		got, err := raw(w.API, "GET "+path+" HTTP/1.1\r\nHost: "+w.API+"\r\nConnection: close\r\n\r\n")
		if err != nil {
			return "", err
		}
		var status int
		if _, err := fmt.Sscanf(got, "HTTP/1.1 %d", &status); err != nil {
			return got, fmt.Errorf("%s: no answer: %w", path, err)
		}
		codes = append(codes, status)
		if status == http.StatusOK && !strings.Contains(got, "<!doctype html>") || status >= http.StatusInternalServerError {
			return got, fmt.Errorf("%s without a token", path)
		}
	}
	return statuses(codes), nil
}

func badJSON(w *target) (string, error) {
	var codes []int
	for _, body := range []string{
		`{"name":"a","name":"b"}`, `{"name":"a","NAME":"b"}`, strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000), strings.Repeat("[", 100_000), "{\"name\":\"\xff\"}", `{"name":"\ud800"}`, `{"name":1e999}`, `{"name":null}`, `null`, `[]`, `"x"`, "",
	} {
		a, err := w.ask(w.admin, http.MethodPost, "/v3/organizations", body)
		if err != nil {
			return "", err
		}
		codes = append(codes, a.status)
		if a.status != http.StatusBadRequest && a.status != http.StatusUnprocessableEntity {
			return a.String(), fmt.Errorf("%.40s", body)
		}
	}
	return statuses(codes), nil
}

// readAll reads and closes an answer.
func readAll(resp *http.Response) (string, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}
