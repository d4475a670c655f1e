package api

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

func (w *testServer) createDomain(name, org string) v3.Domain {
	w.t.Helper()
	body := `{"name":"` + name + `"}`
	if org != "" {
		body = `{"name":"` + name + `","relationships":{"organization":{"data":{"guid":"` + org + `"}}}}`
	}
	var d v3.Domain
	w.want(201, "POST", "/v3/domains", body, &d)
	return d
}

func TestDomains(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o := w.createOrg("shop")
	shared := w.createDomain("Apps.Example.com", "")
	private := w.createDomain("shop.example.org", o.GUID)
	if shared.Name != "apps.example.com" || shared.Relationships.Organization.Data != nil || private.Relationships.Organization.ID() != o.GUID {
		t.Errorf("domains = %+v, %+v", shared, private)
	}
	golden(t, "domain", w.request("GET", "/v3/domains/"+private.GUID, "").Body.Bytes())
	w.wantNames("", "/v3/domains?order_by=name", "apps.example.com", "apps.internal", "dew.localhost", "shop.example.org")
	w.wantNames("", "/v3/domains?names=APPS.example.com", "apps.example.com")
	w.wantNames("", "/v3/domains?organization_guids="+o.GUID, "shop.example.org")
	w.wantNames("", "/v3/organizations/"+o.GUID+"/domains?order_by=name", "apps.example.com", "apps.internal", "dew.localhost", "shop.example.org")
	w.wantNames("", "/v3/organizations/"+w.space.Org+"/domains?order_by=name", "apps.example.com", "apps.internal", "dew.localhost")
	var d v3.Domain
	w.want(200, "GET", "/v3/organizations/"+o.GUID+"/domains/default", "", &d)
	if d.Name != "dew.localhost" {
		t.Errorf("default domain = %s", d.Name)
	}
	w.want(200, "PATCH", "/v3/domains/"+private.GUID, `{"metadata":{"labels":{"a":"b"}}}`, &d)
	w.wantNames("", "/v3/domains?label_selector=a%20in%20(b,c)", "shop.example.org")
	w.refused("", "PATCH /v3/domains/"+private.GUID, `{"metadata":{"labels":{"a":"!"}}}`, "422 metadata.labels[a]")
	w.refused("", "DELETE /v3/domains/"+must(w.c.Registry.DefaultDomain())(t).GUID, "", "422 cannot be deleted")

	sp := w.createSpace(o.GUID, "test")
	rt := must(w.c.Registry.PutRoute(app.Route{Space: sp.GUID, Domain: private.GUID, Host: "www"}))(t)
	if j := w.finish(w.want(202, "DELETE", "/v3/domains/"+private.GUID, "", nil)); j.State != v3.JobComplete {
		t.Fatalf("job = %+v", j)
	}
	w.refused("", "GET /v3/domains/"+private.GUID, "", "404 Domain not found")
	w.refused("", "GET /v3/routes/"+rt.GUID, "", "404 Route not found")
}

func TestDomainsRefused(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o := w.createOrg("shop")
	w.createDomain("shop.example.com", o.GUID)
	must(w.c.Registry.PutRoute(app.Route{Space: w.space.GUID, Domain: must(w.c.Registry.DefaultDomain())(t).GUID, Host: "taken"}))(t)
	in := func(org string) string { return `,"relationships":{"organization":{"data":{"guid":"` + org + `"}}}` }
	for _, tt := range []struct{ name, body, detail string }{
		{"no name", `{}`, "domain: must be a name"},
		{"spaces", `{"name":"a b.com"}`, "domain: must be a name"},
		{"wildcard", `{"name":"*.example.com"}`, "domain: must be a name"},
		{"twice", `{"name":"SHOP.example.com"}`, `is already in use`},
		{"below a domain of another org", `{"name":"x.shop.example.com"` + in(w.space.Org) + `}`, "reserved"},
		{"above a domain of another org", `{"name":"example.com"` + in(w.space.Org) + `}`, "reserved"},
		{"name of a route", `{"name":"taken.dew.localhost"` + in(o.GUID) + `}`, "reserved"},
		{"unknown org", `{"name":"x.com"` + in("x") + `}`, "does not exist or you do not have access to it"},
		{"no org", `{"name":"x.com","relationships":{}}`, "must name an organization"},
		{"internal of an org", `{"name":"x.com","internal":true` + in(o.GUID) + `}`, "cannot be internal"},
		{"router group", `{"name":"x.com","router_group":{"guid":"tcp"}}`, "Router group with guid 'tcp' not found."},
		{"shared with its owner", `{"name":"x.com","relationships":{"organization":{"data":` + byGUID(o.GUID) + `},"shared_organizations":{"data":[` + byGUID(o.GUID) + `]}}}`, "cannot be shared with owning"},
		{"shared with nobody", `{"name":"x.com","relationships":{"organization":{"data":` + byGUID(o.GUID) + `},"shared_organizations":{"data":[` + byGUID("x") + `]}}}`, "does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) { w.refused("", "POST /v3/domains", tt.body, "422 "+tt.detail) })
	}
	w.wantNames("", "/v3/domains?order_by=name", "apps.internal", "dew.localhost", "shop.example.com")
}

// A domain of an org can be used there and in the orgs that it is shared with. Members
// of these orgs can see it.
func TestSharedDomains(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o, guest := w.createOrg("shop"), w.createOrg("guest")
	sp := w.createSpace(guest.GUID, "test")
	d := w.createDomain("shop.example.com", o.GUID)
	path := "/v3/domains/" + d.GUID + "/relationships/shared_organizations"
	boss, host, worker, member := w.user("boss"), w.user("host"), w.user("worker"), w.user("member")
	w.grant(boss, auth.OrgManager, o.GUID)
	w.grant(host, auth.OrgManager, guest.GUID)
	w.grant(member, auth.OrgUser, o.GUID)
	w.grant(worker, auth.SpaceDeveloper, sp.GUID)
	bossToken, hostToken, workerToken := w.login("boss"), w.login("host"), w.login("worker")
	route := app.Route{Space: sp.GUID, Domain: d.GUID, Host: "www"}
	if _, err := w.c.Registry.PutRoute(route); err == nil {
		t.Error("a route in the domain of another org was kept")
	}
	w.wantNames(workerToken, "/v3/domains", "apps.internal", "dew.localhost")
	w.wantNames(w.login("member"), "/v3/domains", "apps.internal", "dew.localhost")
	w.refused(workerToken, "GET /v3/domains/"+d.GUID, "", "404 Domain not found")
	w.refused(bossToken, "POST "+path, `{"data":[`+byGUID(guest.GUID)+`]}`, "422 does not exist, or you do not have access to it")
	w.grant(boss, auth.OrgUser, guest.GUID)
	w.refused(bossToken, "POST "+path, `{"data":[`+byGUID(guest.GUID)+`]}`, "422 You do not have sufficient permissions for organization 'guest' to share domain.")
	w.grant(boss, auth.OrgManager, guest.GUID)
	if got := w.as(bossToken, "POST", path, `{"data":[`+byGUID(guest.GUID)+`]}`); got.Code != 200 {
		t.Fatalf("POST = %d %s, want 200", got.Code, got.Body)
	}
	w.wantNames(workerToken, "/v3/domains?order_by=name", "apps.internal", "dew.localhost", "shop.example.com")
	w.refused(workerToken, "PATCH /v3/domains/"+d.GUID, `{}`, "403 You are not authorized")
	w.refused(hostToken, "DELETE /v3/domains/"+d.GUID, "", "403 You are not authorized")
	w.refused(bossToken, "DELETE /v3/domains/"+d.GUID, "", "422 This domain is shared with other organizations.")
	rt := must(w.c.Registry.PutRoute(route))(t)
	w.refused(hostToken, "DELETE "+path+"/"+guest.GUID, "", "422 has associated routes in this organization")
	if err := w.c.Registry.DeleteRoute(rt.GUID); err != nil {
		t.Fatal(err)
	}
	w.refused(workerToken, "DELETE "+path+"/"+guest.GUID, "", "403 You are not authorized")
	if got := w.as(hostToken, "DELETE", path+"/"+guest.GUID, ""); got.Code != 204 {
		t.Errorf("DELETE = %d %s, want 204", got.Code, got.Body)
	}
	w.refused("", "DELETE "+path+"/"+guest.GUID, "", "422 Ensure the domain is shared to this organization.")
	shared := must(w.c.Registry.DefaultDomain())(t)
	w.refused("", "POST /v3/domains/"+shared.GUID+"/relationships/shared_organizations", `{"data":[]}`, "422 unless they are scoped to an organization")
	w.refused(bossToken, "POST /v3/domains", `{"name":"all.example.org"}`, "403 You are not authorized")
	if got := w.as(bossToken, "POST", "/v3/domains", `{"name":"mine.example.org","relationships":{"organization":{"data":`+byGUID(o.GUID)+`}}}`); got.Code != 201 {
		t.Errorf("a manager makes a domain: %d %s", got.Code, got.Body)
	}
}
