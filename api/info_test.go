package api

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet/stack"
)

// All collections that the index names exist.
func TestIndex(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	var index v3.Index
	w.want(200, "GET", "/v3", "", &index)
	for name, link := range index.Links {
		if name == "self" || name == "resource_matches" || name == "environment_variable_groups" {
			continue // it has no GET endpoint
		}
		if got := w.request("GET", link.Href[len(publicURL):], ""); got.Code != 200 {
			t.Errorf("%s = %d %s, want 200", link.Href, got.Code, got.Body)
		}
	}
	var info v3.Info
	w.want(200, "GET", "/v3/info", "", &info)
	if info.Build != "1.2.3" || info.BrokerVersion == "" {
		t.Errorf("info = %+v, want the version of the daemon and of the broker API", info)
	}
}

// A stack shows its state and the reason. Builds get a warning for a deprecated stack
// and are refused for a restricted or disabled one.
func TestStackState(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	at := "/v3/stacks/" + stack.GUID(stack.Default)
	_, pkg, _ := w.pushed("old")
	build := `{"package":{"guid":"` + pkg + `"}}`
	set := func(state string) v3.Stack {
		var st v3.Stack
		w.want(200, "PATCH", at, `{"state":"`+state+`","state_reason":"use another"}`, &st)
		return st
	}
	if st := set("DEPRECATED"); st.State != "DEPRECATED" || st.StateReason == nil || *st.StateReason != "use another" {
		t.Errorf("stack = %+v, want it deprecated with the reason", st)
	}
	if h := w.want(201, "POST", "/v3/builds", build, nil); h.Get("X-Cf-Warnings") == "" {
		t.Error("a build with a deprecated stack has no warning")
	}
	set("RESTRICTED")
	wantError(t, w.request("POST", "/v3/builds", build), "CF-UnprocessableEntity", "restricted and cannot be used for staging new applications: use another")
	set("DISABLED")
	wantError(t, w.request("POST", "/v3/builds", build), "CF-UnprocessableEntity", "disabled and cannot be used for staging")
	wantError(t, w.request("PATCH", at, `{"state":"GONE"}`), "CF-UnprocessableEntity", "state must be ACTIVE")
	set("ACTIVE")
	w.want(201, "POST", "/v3/builds", build, nil)
	var all v3.List[v3.Stack]
	w.want(200, "GET", "/v3/stacks", "", &all)
	if len(all.Resources) == 0 || all.Resources[0].State != "ACTIVE" {
		t.Errorf("stacks = %+v, want the first ACTIVE", all.Resources)
	}
}
