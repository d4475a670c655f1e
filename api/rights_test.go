//go:build integration

package api

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
)

// An endpoint that lacks a field is refused with an error that names its pattern.
func TestEndpointsAreComplete(t *testing.T) {
	t.Parallel()
	whole := rights["GET /v3/apps"]
	if err := whole.Check(); err != nil {
		t.Fatalf("check = %v", err)
	}
	for name, change := range map[string]func(e *rest.Endpoint){
		"no need":      func(e *rest.Endpoint) { e.Needs = 0 },
		"no handler":   func(e *rest.Endpoint) { e.Handler = nil },
		"two handlers": func(e *rest.Endpoint) { e.Raw = http.NotFoundHandler() },
		"no shape":     func(e *rest.Endpoint) { e.Shape = rest.Shape{} },
	} {
		e := whole
		change(&e)
		if err := e.Check(); err == nil || !strings.Contains(err.Error(), whole.Pattern) {
			t.Errorf("%s: check = %v, want an error that names the pattern", name, err)
		}
	}
}

// Without a valid token, every endpoint reveals only public data.
func TestEveryEndpointWantsToken(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	good := h.tokens["admin"]
	noScope := h.client("scopeless", "uaa.resource")
	readOnly := h.client("reader", auth.ScopeRead)
	revoked := h.client("revoked", auth.ScopeAdmin)
	if err := h.c.Auth.Accounts().DeleteClient("revoked"); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"expired": resign(t, good, func(c map[string]any) { c["exp"] = 1 }),
		"forged":  signWithOtherKey(t, good, func(c map[string]any) { c["sub"] = "x" }),
		"revoked": revoked, "garbage": "abc", "three parts": "a.b.c",
		"unsigned": unsigned(t, good), "cut": good[:len(good)-4],
	}
	if got := h.as(resign(t, good, func(map[string]any) {}), "GET", "/v3/apps", ""); got.Code != 200 {
		t.Fatalf("a token that is signed anew = %d %s, want 200", got.Code, got.Body)
	}
	for turn, pattern := range slices.Sorted(maps.Keys(rights)) {
		method, path := h.methodAndPath(t, pattern)
		if slices.Contains(openDoors, pattern) {
			want := http.StatusOK
			if pattern == secretDoor {
				want = http.StatusNotFound
			}
			for _, token := range append(slices.Collect(maps.Values(bad)), "", good) {
				if got := h.as(token, method, path, ""); got.Code != want {
					t.Errorf("%s with token %.8q = %d, want %d: it is open", pattern, token, got.Code, want)
				}
			}
			continue
		}
		if slices.Contains(openMarket, pattern) {
			if got := h.as("", method, path, ""); got.Code != http.StatusOK && got.Code != http.StatusNotFound {
				t.Errorf("%s without a token = %d, want what everybody can have", pattern, got.Code)
			} else {
				h.wantNoLeak(t, pattern, got)
			}
		} else {
			h.wantRefusal(t, pattern, h.as("", method, path, "{}"), refusal{401, "CF-NotAuthenticated", "Authentication error"})
		}
		for i, name := range sortedKeys(bad) {
			token := bad[name]
			if (i+turn)%len(bad) > 1 && !longTests() { // the same code checks all tokens
				continue
			}
			h.wantRefusal(t, pattern+" "+name, h.as(token, method, path, "{}"), refusal{401, "CF-InvalidAuthToken", "Invalid Auth Token"})
		}
		if rights[pattern].Local {
			h.wantRefusal(t, pattern, h.as(good, method, path, "{}"), refusal{404, "CF-NotFound", "Unknown request"})
			continue
		}
		h.wantRefusal(t, pattern+" without scope", h.as(noScope, method, path, "{}"), refusal{403, "CF-NotAuthorized", "You are not authorized"})
		if method != http.MethodGet {
			h.wantRefusal(t, pattern+" with a scope to read", h.as(readOnly, method, path, "{}"), refusal{403, "CF-NotAuthorized", "You are not authorized"})
		}
	}
	if len(h.shutdown) > 0 || len(h.fake.signals) > 0 {
		t.Error("somebody without a token changed something")
	}
}

// refusal is an error response that contains only the reason.
type refusal struct {
	status        int
	title, detail string
}

func (h *orgServer) wantRefusal(t *testing.T, what string, got *httptest.ResponseRecorder, want refusal) {
	t.Helper()
	if got.Code != want.status {
		t.Errorf("%s = %d %.200s, want %d", what, got.Code, got.Body, want.status)
		return
	}
	wantError(t, got, want.title, want.detail)
	h.wantNoLeak(t, what, got)
}

// wantNoLeak checks that a response contains nothing of the org server.
func (h *orgServer) wantNoLeak(t *testing.T, what string, got *httptest.ResponseRecorder) {
	t.Helper()
	if text := got.Body.String(); strings.Contains(text, orgMark) {
		t.Errorf("%s reveals the other org: %.300s", what, text)
	}
	if got.Code >= 500 {
		t.Errorf("%s = %d %s", what, got.Code, got.Body)
	}
}

// For users with all roles in another org and for users without roles, resources of the
// org server do not exist.
func TestOtherOrgIsHidden(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	for pattern, rules := range rulesByPattern(t) {
		rt, ok := rights[pattern]
		if !ok {
			continue // a variant
		}
		method, path := h.methodAndPath(t, pattern)
		if pattern == "GET /dew/v1/live/stream" {
			path += "?follow=false" // every user can open it, and it would not end
		}
		for _, who := range []string{stranger, nobody} {
			got := h.as(h.tokens[who], method, path, "{}")
			h.wantNoLeak(t, who+" "+pattern, got)
			switch {
			case rt.Local || rt.Hidden:
				h.wantRefusal(t, who+" "+pattern, got, refusal{404, "CF-NotFound", "Unknown request"})
			case rt.Resource.Find != nil:
				h.wantRefusal(t, who+" "+pattern, got, refusal{404, "CF-ResourceNotFound", rt.Resource.Name + " not found"})
			case strings.HasPrefix(path, "/networking/"): // the body names the apps: see TestEveryEndpointEveryRole
			case rules.answerTo(who) == 403 && rt.Resource.Look == nil:
				h.wantRefusal(t, who+" "+pattern, got, refusal{403, "CF-NotAuthorized", ""})
			}
		}
	}
}

// Resources in a body are not revealed either, and nothing is created.
func TestOtherOrgInBodyIsHidden(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	one := func(noun, guid string) string {
		return `"relationships":{"` + noun + `":{"data":{"guid":"` + guid + `"}}}`
	}
	stranger := must(h.c.Auth.Accounts().UserByName("stranger", ""))(t).GUID
	role := func(kind, noun, guid string) string {
		return `{"type":"` + kind + `","relationships":{"user":{"data":{"guid":"` + stranger + `"}},"` + noun + `":{"data":{"guid":"` + guid + `"}}}}`
	}
	before := h.count(t)
	for path, bodies := range map[string][]string{
		"/v3/organizations": {`{"name":"mine"}`},
		"/v3/spaces":        {`{"name":"mine",` + one("organization", h.org.GUID) + `}`},
		"/v3/apps":          {`{"name":"mine",` + one("space", h.space.GUID) + `}`},
		"/v3/packages":      {`{"type":"bits",` + one("app", h.app) + `}`},
		"/v3/builds":        {`{"package":{"guid":"` + h.pkg + `"}}`},
		"/v3/domains":       {`{"name":"mine.example.org"}`, `{"name":"mine.example.org",` + one("organization", h.org.GUID) + `}`},
		"/v3/users":         {`{"guid":"mine"}`},
		"/v3/service_brokers": {
			`{"name":"mine","url":"https://x.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}}}`,
			`{"name":"mine","url":"https://x.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}},` + one("space", h.space.GUID) + `}`,
		},
		"/v3/service_instances": {
			`{"type":"user-provided","name":"mine",` + one("space", h.space.GUID) + `}`,
			h.managed("mine", "small", ""), h.managed("mine", orgMark+"-small", ""),
		},
		"/v3/service_credential_bindings": {
			boundTo(h.guids["Service instance"], "", `,"name":"mine"`), boundTo(h.guids["Service instance"], h.app, ""),
		},
		"/v3/service_route_bindings": {
			`{"relationships":{"route":{"data":{"guid":"` + h.guids["Route"] + `"}},"service_instance":{"data":{"guid":"` + h.guids["Service instance"] + `"}}}}`,
		},
		"/v3/roles": {
			role("space_developer", "space", h.space.GUID), role("organization_manager", "organization", h.org.GUID),
		},
	} {
		for _, body := range bodies {
			for _, who := range []string{"stranger", "nobody"} {
				got := h.as(h.tokens[who], "POST", path, body)
				h.wantNoLeak(t, who+" POST "+path, got)
				if got.Code != 422 && got.Code != 403 {
					t.Errorf("%s POST %s %s = %d %s, want 422 or 403", who, path, body, got.Code, got.Body)
				}
			}
		}
	}
	if got := h.count(t); got != before {
		t.Errorf("somebody made something: %v, before %v", got, before)
	}
}

// count counts the resources that these users could have created.
func (h *orgServer) count(t *testing.T) (n [9]int) {
	t.Helper()
	n[0] = len(must(h.c.Registry.Orgs())(t))
	n[1] = len(must(h.c.Registry.Spaces())(t))
	n[2] = len(must(h.c.Registry.Apps())(t))
	n[3] = len(must(h.c.Registry.Domains())(t))
	n[4] = len(must(h.c.Roles.All())(t))
	n[5] = len(must(h.c.Packages.OfApp(h.app))(t))
	n[6] = len(must(h.c.Services.Brokers(services.BrokerFilter{}))(t))
	n[7] = len(must(h.c.Services.Instances(services.InstanceFilter{}))(t))
	n[8] = len(must(h.c.Services.Bindings(services.BindingFilter{}))(t))
	return n
}

// Each role has the same permissions as on Cloud Foundry, at every endpoint. The
// requests go to the whole server with valid bodies.
func TestEveryEndpointEveryRole(t *testing.T) {
	t.Parallel()
	rules := rulesByPattern(t)
	c := newPermissionServer(t)
	for _, pattern := range slices.Sorted(maps.Keys(rules)) {
		for _, who := range anybody {
			if rules[pattern].answerTo(nobody) == 0 && who != nobody && who != orgUser && !longTests() {
				continue // these two have the fewest permissions
			}
			if want := rules[pattern].answerTo(who); want != 0 {
				c.wantRefused(pattern, who, want)
			} else if rules[pattern].harmless(pattern) {
				c.wantLetIn(pattern, who, rules[pattern])
			}
		}
	}
	for _, who := range anybody {
		c = nil // the changes of one user must not affect the next
		for _, pattern := range slices.SortedFunc(maps.Keys(rules), deletionsLast) {
			if rules[pattern].harmless(pattern) || rules[pattern].answerTo(who) != 0 {
				continue
			}
			if c == nil {
				c = newPermissionServer(t)
			}
			c.wantLetIn(pattern, who, rules[pattern])
		}
	}
}

// A list contains a resource if and only if the user can read it directly.
func TestEveryListEveryRole(t *testing.T) {
	t.Parallel()
	rules := rulesByPattern(t)
	c := newPermissionServer(t)
	compared := 0
	for _, pattern := range slices.Sorted(maps.Keys(rules)) {
		all, listed := strings.CutSuffix(pattern, "/{guid}")
		if _, ok := rules[all]; !listed || !ok || !strings.HasPrefix(all, "GET /v3/") {
			continue
		}
		compared++
		_, path := c.place(pattern)
		guid := path[strings.LastIndex(path, "/")+1:]
		for _, who := range anybody {
			got := c.send(who, "GET", strings.TrimPrefix(all, "GET ")+"?per_page=5000", "").Body.String()
			if want := rules[pattern].answerTo(who) == 0 && !unlisted[pattern+" "+who]; strings.Contains(got, `"guid":"`+guid+`"`) != want {
				t.Errorf("%s as %s has %s: %v, want %v", all, who, guid, !want, want)
			}
		}
	}
	if compared < 25 {
		t.Errorf("only %d lists were compared", compared)
	}
}

// deletionsLast sorts patterns so that resources are deleted after all other requests.
func deletionsLast(a, b string) int {
	deletes := func(p string) int { return strings.Count(p, "DELETE ") }
	return cmp.Or(deletes(a)-deletes(b), strings.Count(b, "/")-strings.Count(a, "/"), strings.Compare(a, b))
}

// A suspended org can be read, and only administrators can change it.
func TestSuspendedOrg(t *testing.T) {
	t.Parallel()
	c := newPermissionServer(t)
	h := c.orgServer
	h.want(200, "PATCH", "/v3/organizations/"+h.org.GUID, `{"suspended":true}`, nil)
	tried := 0
	rules := rulesByPattern(t)
	for _, pattern := range slices.Sorted(maps.Keys(rules)) {
		for _, who := range anybody {
			if who == admin || rules[pattern].harmless(pattern) || rules[pattern].answerTo(who) != 0 {
				continue
			}
			tried++
			got := c.demand(pattern, who)
			if got.Code != 403 {
				t.Errorf("%s as %s = %d %s, want 403", pattern, who, got.Code, got.Body)
				continue
			}
			wantError(t, got, "CF-OrgSuspended", "The organization is suspended")
		}
	}
	if tried < 100 {
		t.Errorf("only %d changes were tried", tried)
	}
	dev := h.tokens["space_developer"]
	if got := h.as(dev, "GET", "/v3/apps/"+h.app, ""); got.Code != 200 {
		t.Errorf("reading in a suspended org = %d %s, want 200", got.Code, got.Body)
	}
	if got := h.as(dev, "POST", "/v3/apps", `{"name":"x","relationships":{"space":{"data":{"guid":"`+h.space.GUID+`"}}}}`); got.Code != 403 {
		t.Errorf("creating an app in a suspended org = %d %s, want 403", got.Code, got.Body)
	}
	if got := h.as(h.tokens["admin"], "POST", "/v3/apps/"+h.app+"/actions/stop", ""); got.Code != 200 {
		t.Errorf("an administrator in a suspended org = %d %s, want 200", got.Code, got.Body)
	}
	if err := h.s.access.Require(access.WithCaller(context.Background(), &access.Caller{Who: must(h.c.Auth.Verify(dev))(t)}), access.Read, h.space.GUID); err != nil {
		t.Errorf("demand to read in a suspended org = %v", err)
	}
}

// resign changes the claims of a token and signs it with the server's own key.
func resign(t *testing.T, token string, change func(claims map[string]any)) string {
	t.Helper()
	files := must(filepath.Glob(filepath.Join(began, "keys", "*.pem")))(t)
	raw := must(os.ReadFile(files[len(files)-1]))(t)
	block, _ := pem.Decode(raw)
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		k = must(x509.ParsePKCS1PrivateKey(block.Bytes))(t)
	}
	return sign(t, token, change, k.(*rsa.PrivateKey))
}

// signWithOtherKey signs it with another key.
func signWithOtherKey(t *testing.T, token string, change func(claims map[string]any)) string {
	t.Helper()
	return sign(t, token, change, must(rsa.GenerateKey(rand.Reader, 2048))(t))
}

func sign(t *testing.T, token string, change func(claims map[string]any), k *rsa.PrivateKey) string {
	t.Helper()
	head, body, _ := strings.Cut(token[:strings.LastIndex(token, ".")], ".")
	text := head + "." + changeClaims(t, body, change)
	sum := sha256.Sum256([]byte(text))
	sig := must(rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:]))(t)
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func changeClaims(t *testing.T, body string, change func(claims map[string]any)) string {
	t.Helper()
	var claims map[string]any
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(body))(t), &claims); err != nil {
		t.Fatal(err)
	}
	change(claims)
	return base64.RawURLEncoding.EncodeToString(must(json.Marshal(claims))(t))
}

// unsigned is the token with the algorithm none.
func unsigned(t *testing.T, token string) string {
	t.Helper()
	_, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + body + "."
}
