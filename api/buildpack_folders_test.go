package api

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
)

// A user who can push to a space can upload a folder as a buildpack for its apps. Apps
// of other spaces cannot name it.
func TestUploadFolder(t *testing.T) {
	w := newTestServer(t)
	joe := w.user("joe")
	w.grant(joe, auth.OrgUser, w.space.Org)
	w.grant(joe, auth.SpaceDeveloper, w.space.GUID)
	token := w.login("joe")
	send := func(query string, files map[string]string) *httptest.ResponseRecorder {
		body, kind := form(t, "", zipped(t, files))
		r := httptest.NewRequest("POST", "/dew/v1/spaces/"+w.space.GUID+"/buildpacks"+query, bytes.NewReader(body))
		r.Host = "127.0.0.1:8484"
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", "bearer "+token)
		got := httptest.NewRecorder()
		w.listener.ServeHTTP(got, r)
		return got
	}
	got := send("?name=perl", map[string]string{"bin/detect": "#!/bin/sh"})
	var f v3.UploadedFolder
	if decodeInto(t, got, &f); got.Code != 201 || !strings.HasPrefix(f.Name, "folder:perl@") {
		t.Fatalf("upload = %d %s", got.Code, got.Body)
	}
	wantError(t, send("", map[string]string{"bin/detect": "x"}), "CF-UnprocessableEntity", "letters, digits")
	wantError(t, send("?name=x", map[string]string{"detect": "x"}), "CF-UnprocessableEntity", "is no buildpack")

	app := `{"name":%q,"lifecycle":{"type":"buildpack","data":{"buildpacks":[%q]}},"relationships":{"space":{"data":{"guid":%q}}}}`
	if got := w.as(token, "POST", "/v3/apps", fmt.Sprintf(app, "shop", f.Name, w.space.GUID)); got.Code != 201 {
		t.Errorf("an app of the space: %d %s", got.Code, got.Body)
	}
	var other v3.Space
	w.want(201, "POST", "/v3/spaces", fmt.Sprintf(`{"name":"other","relationships":{"organization":{"data":{"guid":%q}}}}`, w.space.Org), &other)
	wantError(t, w.request("POST", "/v3/apps", fmt.Sprintf(app, "shop", f.Name, other.GUID)), "CF-UnprocessableEntity", "no such folder was uploaded to this space")
	manifest := "applications: [{name: two, buildpacks: ['" + f.Name + "']}]"
	for space, want := range map[string]string{w.space.GUID: v3.JobComplete, other.GUID: v3.JobFailed} {
		if j := w.finish(w.want(202, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest, nil)); j.State != want {
			t.Errorf("manifest: %+v, want %s", j, want)
		}
	}
}
