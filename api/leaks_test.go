package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

// A user of one org cannot learn about another org that shares a resource with it.
// Neither included resources nor filters reveal the other org.
func TestSharingRevealsNothingElse(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	org := must(w.c.Registry.PutOrg(app.Org{Name: "visitors"}))(t)
	space := w.createSpace(org.GUID, "theirs")
	guid := w.user("ann")
	w.grant(guid, auth.OrgUser, org.GUID)
	w.grant(guid, auth.SpaceDeveloper, space.GUID)
	ann := w.login("ann")

	var domains v3.List[v3.Domain]
	w.want(200, "GET", "/v3/domains?names=dew.localhost", "", &domains)
	var rt v3.Route
	w.want(201, "POST", "/v3/routes", `{"host":"both","relationships":{"space":{"data":{"guid":"`+w.space.GUID+`"}},"domain":{"data":{"guid":"`+domains.Resources[0].GUID+`"}}}}`, &rt)
	w.want(200, "POST", "/v3/routes/"+rt.GUID+"/relationships/shared_spaces", `{"data":[{"guid":"`+space.GUID+`"}]}`, nil)
	for _, path := range []string{"/v3/routes?", "/v3/routes/" + rt.GUID + "?"} {
		got := w.as(ann, "GET", path+"include=space,space.organization,domain", "")
		var answer struct {
			Included map[string][]struct{ Name string }
		}
		if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil || got.Code != 200 {
			t.Fatalf("%s: %d, %v", path, got.Code, err)
		}
		if in := answer.Included; len(in["spaces"]) != 0 || len(in["organizations"]) != 0 || len(in["domains"]) != 1 {
			t.Errorf("%s: beside the route stand %v, want its domain alone", path, in)
		}
	}

	group := must(w.c.Registry.PutSecurityGroup(app.SecurityGroup{Name: "all", Running: true, Runs: []string{w.space.GUID, space.GUID}}))(t)
	segment := must(w.c.Registry.PutSegment(app.Segment{Name: "far", Orgs: []string{w.space.Org, org.GUID}}))(t)
	for path, want := range map[string]string{
		"/v3/security_groups?running_space_guids=" + space.GUID:     group.GUID,
		"/v3/security_groups?running_space_guids=" + w.space.GUID:   "",
		"/v3/isolation_segments?organization_guids=" + org.GUID:     segment.GUID,
		"/v3/isolation_segments?organization_guids=" + w.space.Org:  "",
		"/v3/organization_quotas?organization_guids=" + w.space.Org: "",
	} {
		got := w.as(ann, "GET", path, "").Body.String()
		if found := strings.Contains(got, `"total_results":1`); found != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s = %s, want %q", path, got, want)
		}
	}
}

// Auditors of an org see its events, and members of a space see the events of the
// space. Managers and users of the org see neither.
func TestEventVisibility(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.want(200, "PATCH", "/v3/organizations/"+w.space.Org, `{"metadata":{"labels":{"a":"b"}}}`, nil)
	of := func(token string) (org, space bool) {
		got := w.as(token, "GET", "/v3/audit_events?organization_guids="+w.space.Org, "").Body.String()
		return strings.Contains(got, "audit.organization.update"), strings.Contains(got, a.GUID)
	}
	for _, tt := range []struct {
		name       string
		role       auth.RoleType
		place      string
		org, space bool
	}{
		{"member", auth.OrgUser, w.space.Org, false, false},
		{"billing", auth.OrgBilling, w.space.Org, false, false},
		{"auditor", auth.OrgAuditor, w.space.Org, true, true},
		{"manager", auth.OrgManager, w.space.Org, false, false},
		{"developer", auth.SpaceDeveloper, w.space.GUID, false, true},
		{"listener", auth.SpaceAuditor, w.space.GUID, false, true},
		{"supporter", auth.SpaceSupporter, w.space.GUID, false, true},
		{"head", auth.SpaceManager, w.space.GUID, false, false},
	} {
		guid := w.user(tt.name)
		if !tt.role.OfOrg() {
			w.grant(guid, auth.OrgUser, w.space.Org)
		}
		w.grant(guid, tt.role, tt.place)
		if org, space := of(w.login(tt.name)); org != tt.org || space != tt.space {
			t.Errorf("%s sees events of the org: %v, of the space: %v, want %v, %v", tt.name, org, space, tt.org, tt.space)
		}
	}
}
