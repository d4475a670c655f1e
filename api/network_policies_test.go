package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

const policiesPath = "/networking/v1/external/policies"

func policyBody(from, to, protocol string, start, end int) string {
	return fmt.Sprintf(`{"policies":[{"source":{"id":%q},"destination":{"id":%q,"protocol":%q,"ports":{"start":%d,"end":%d}}}]}`, from, to, protocol, start, end)
}

// The root document leads the stock client to the policies. Administrators and
// developers of both apps can change them, and no one else.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	var root v3.Root
	if w.want(200, "GET", "/", "", &root); root.Links.NetworkPolicyV1 == nil || !strings.HasSuffix(root.Links.NetworkPolicyV1.Href, "/networking/v1/external") {
		t.Errorf("link = %v", root.Links.NetworkPolicyV1)
	}
	other := w.createSpace(w.space.Org, "other")
	front, back := w.createApp("front"), w.createApp("back")
	far := must(w.c.Registry.PutApp(app.App{Name: "far", Space: other.GUID}))(t)
	for role, name := range map[auth.RoleType]string{auth.SpaceDeveloper: "dora", auth.SpaceManager: "mona", auth.SpaceAuditor: "otto", auth.SpaceSupporter: "sue"} {
		guid := w.user(name)
		w.grant(guid, auth.OrgUser, w.space.Org)
		w.grant(guid, role, w.space.GUID)
	}
	near, away := policyBody(front.GUID, back.GUID, "tcp", 8080, 8090), policyBody(front.GUID, far.GUID, "udp", 53, 53)
	w.want(200, "POST", policiesPath, away, nil)
	for name, want := range map[string]int{"dora": 200, "mona": 403, "otto": 403, "sue": 403} {
		token := w.login(name)
		for _, path := range []string{policiesPath, policiesPath + "/delete", policiesPath} {
			got := w.as(token, "POST", path, near)
			if got.Code != want || want == 403 && !strings.Contains(got.Body.String(), `"error":"one or more applications cannot be found or accessed"`) {
				t.Errorf("%s: POST %s = %d %s, want %d", name, path, got.Code, got.Body, want)
			}
		}
		if got := w.as(token, "POST", policiesPath, away); got.Code != 403 {
			t.Errorf("%s: a policy to another space = %d, want 403", name, got.Code)
		}
		sees := strings.Contains(w.as(token, "GET", policiesPath, "").Body.String(), back.GUID)
		if hidden := strings.Contains(w.as(token, "GET", policiesPath, "").Body.String(), far.GUID); sees != (name == "dora") || hidden {
			t.Errorf("%s: sees the policy: %v, sees that of another space: %v", name, sees, hidden)
		}
	}
	for query, want := range map[string]int{"": 2, "?id=" + back.GUID: 1, "?id=x," + front.GUID: 2, "?source_id=" + back.GUID: 0, "?dest_id=" + far.GUID: 1, "?id=": 0} {
		var list v3.NetworkPolicies
		if w.want(200, "GET", policiesPath+query, "", &list); len(list.Policies) != want || list.Total != want {
			t.Errorf("%s: %+v, want %d", query, list, want)
		}
	}
	wantError(t, w.request("GET", policiesPath+"?colour=red", ""), "CF-BadQueryParameter", "'colour'")
	for body, want := range map[string]string{
		`{"policies":[]}`: "mapper: validate policies: missing policies",
		policyBody(front.GUID, back.GUID, "icmp", 1, 1):  "mapper: validate policies: invalid destination protocol, specify either udp or tcp",
		policyBody(front.GUID, back.GUID, "tcp", 0, 0):   "mapper: validate policies: missing start port",
		policyBody(front.GUID, back.GUID, "tcp", 90, 80): "mapper: validate policies: invalid port range 90-80, start must be less than or equal to end",
	} {
		if got := w.request("POST", policiesPath, body); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), `"error":"`+want+`"`) {
			t.Errorf("%s = %d %s, want %s", body, got.Code, got.Body, want)
		}
	}
	if got := w.request("POST", policiesPath, policyBody(front.GUID, "gone", "tcp", 80, 80)); got.Code != http.StatusForbidden {
		t.Errorf("a policy to no app = %d, want 403", got.Code)
	}
}
