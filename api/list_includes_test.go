package api

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/market"
)

// includePath is the key of included resources in a list, and the trail to their GUIDs.
type includePath struct{ noun, trail string }

// includesByKind holds the resources that can be included, by kind of item.
var includesByKind = map[string]map[string]includePath{
	"App":   {"space": {"spaces", inSpace}, "org": {"organizations", inSpace + " Space:" + inOrg}, "space.organization": {"organizations", inSpace + " Space:" + inOrg}},
	"Space": {"org": {"organizations", inOrg}, "organization": {"organizations", inOrg}},
	"Route": {
		"domain": {"domains", "relationships.domain.data.guid"}, "space": {"spaces", inSpace},
		"space.organization": {"organizations", inSpace + " Space:" + inOrg},
	},
	"Role": {"user": {"users", "relationships.user.data.guid"}, "organization": {"organizations", inOrg}, "space": {"spaces", inSpace}},
	"ServicePlan": {
		"service_offering": {"service_offerings", "relationships.service_offering.data.guid"}, "space.organization": {"organizations", inSpace + " Space:" + inOrg},
	},
	"ServiceCredentialBinding": {"app": {"apps", ofApp}, "service_instance": {"service_instances", ofInstance}},
	"ServiceRouteBinding":      {"route": {"routes", "relationships.route.data.guid"}, "service_instance": {"service_instances", ofInstance}},
}

// includedParts holds the same for the fields parameters.
var includedParts = map[string]includePath{
	market.FieldsOfBroker:         {"service_brokers", ofItsBroker},
	market.FieldsOfOfferingBroker: {"service_brokers", "relationships.service_offering.data.guid ServiceOffering:" + ofItsBroker},
	market.FieldsOfSpace:          {"spaces", inSpace},
	market.FieldsOfOrg:            {"organizations", inSpace + " Space:" + inOrg},
	market.FieldsOfPlan:           {"service_plans", "relationships.service_plan.data.guid"},
	market.FieldsOfPlanOffering:   {"service_offerings", "relationships.service_plan.data.guid ServicePlan:relationships.service_offering.data.guid"},
	market.FieldsOfPlanBroker: {
		"service_brokers", "relationships.service_plan.data.guid ServicePlan:relationships.service_offering.data.guid ServiceOffering:" + ofItsBroker,
	},
}

var validIncludes = regexp.MustCompile(`Valid included resources are: '(.*)'`)

// checkIncludes requests every resource that a list can include, alone and all together. It
// expects exactly the resources that the items refer to.
func (l listCase) checkIncludes(t *testing.T) {
	t.Helper()
	if slices.Contains(l.o.Params, "include") {
		l.includes(t)
	}
	for _, name := range l.o.Params {
		if strings.HasPrefix(name, "fields[") {
			l.fields(t, name)
		}
	}
}

func (l listCase) includes(t *testing.T) {
	t.Helper()
	listed := validIncludes.FindStringSubmatch(l.request("GET", l.path+"?include=surprise", "").Body.String())
	if listed == nil {
		t.Fatalf("%s does not say what it can include", l.pattern)
	}
	names := strings.Split(listed[1], "', '")
	if diff := cmp.Diff(sorted(names), sortedKeys(includesByKind[l.kind])); diff != "" {
		t.Errorf("%s includes other things (-told +known):\n%s", l.pattern, diff)
	}
	for _, include := range append(names, strings.Join(names, ",")) {
		want := map[string][]string{}
		for _, name := range strings.Split(include, ",") {
			s := includesByKind[l.kind][name]
			want[s.noun] = l.leadTo(s.trail)
			if l.kind == "ServicePlan" && name == "space.organization" {
				want["spaces"] = l.leadTo(inSpace)
			}
		}
		l.wantIncludes(t, url.Values{"include": {include}}, want)
	}
}

// leadTo returns the GUIDs that the items refer to.
func (l listCase) leadTo(trail string) []string {
	all := []string{}
	for _, i := range l.all {
		all = append(all, l.ref.follow(i.record, trail)...)
	}
	return slices.Compact(sorted(all))
}

func (l listCase) wantIncludes(t *testing.T, q url.Values, want map[string][]string) map[string]any {
	t.Helper()
	page := l.page(t, l.address(q))
	if len(page.Resources) != len(l.all) {
		t.Errorf("%s with %v has %d, want all %d", l.pattern, q, len(page.Resources), len(l.all))
	}
	got := map[string][]string{}
	for noun, all := range page.Included {
		got[noun] = sorted(append([]string{}, textsAt(all, "guid")...))
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s with %v (-got +want):\n%s", l.pattern, q, diff)
	}
	return page.Included
}

// fields requests the GUID only, and then all fields.
func (l listCase) fields(t *testing.T, param string) {
	t.Helper()
	s := includedParts[param]
	want := map[string][]string{s.noun: l.leadTo(s.trail)}
	l.wantIncludes(t, url.Values{param: {"guid"}}, want)
	names := market.ServiceFieldNames[param]
	included := l.wantIncludes(t, url.Values{param: {strings.Join(names, ",")}}, want)
	tops := []string{}
	for _, name := range names {
		top, _, _ := strings.Cut(name, ".")
		tops = append(tops, top)
	}
	for _, one := range included[s.noun].([]any) {
		if diff := cmp.Diff(sortedKeys(one.(record)), slices.Compact(sorted(tops))); diff != "" {
			t.Errorf("%s with %s shows (-got +want):\n%s", l.pattern, param, diff)
		}
	}
}
