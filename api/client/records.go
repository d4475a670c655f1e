package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// Kind is a kind of resources that have names and are kept at one path.
type Kind[T any] struct {
	Noun string // as people call one: "org quota"
	Path string // where they are
	Name func(T) string
	GUID func(T) string

	name, value string // of a filter, if there is one
}

// The kinds of resources that are records on this platform.
var (
	OrgQuotas      = Kind[v3.Quota]{Noun: "org quota", Path: "/v3/organization_quotas", Name: quotaName, GUID: quotaGUID}
	SpaceQuotas    = Kind[v3.Quota]{Noun: "space quota", Path: "/v3/space_quotas", Name: quotaName, GUID: quotaGUID}
	SecurityGroups = Kind[v3.SecurityGroup]{
		Noun: "security group", Path: "/v3/security_groups",
		Name: func(g v3.SecurityGroup) string { return g.Name }, GUID: func(g v3.SecurityGroup) string { return g.GUID },
	}
	IsolationSegments = Kind[v3.IsolationSegment]{
		Noun: "isolation segment", Path: "/v3/isolation_segments",
		Name: func(s v3.IsolationSegment) string { return s.Name }, GUID: func(s v3.IsolationSegment) string { return s.GUID },
	}
)

func quotaName(q v3.Quota) string { return q.Name }
func quotaGUID(q v3.Quota) string { return q.GUID }

// Where is the kind with a filter: only those are listed and found that it lets
// through.
func (k Kind[T]) Where(name, value string) Kind[T] {
	k.name, k.value = name, value
	return k
}

func (k Kind[T]) query(name, value string) url.Values {
	q := url.Values{name: {value}}
	if k.name != "" {
		q.Set(k.name, filter(k.value))
	}
	return q
}

// List lists them by name.
func (k Kind[T]) List(ctx context.Context, c *Client) ([]T, error) {
	return list[T](ctx, c, k.Path, k.query("order_by", "name"))
}

// ByName finds one, or fails with *Missing.
func (k Kind[T]) ByName(ctx context.Context, c *Client, name string) (T, error) {
	all, err := list[T](ctx, c, k.Path, k.query("names", filter(name)))
	return first(all, err, &Missing{Kind: k.Noun, Name: name})
}

// Create makes one.
func (k Kind[T]) Create(ctx context.Context, c *Client, body any) (T, error) {
	var out T
	_, err := c.call(ctx, http.MethodPost, k.Path, body, &out)
	return out, err
}

// Update changes one.
func (k Kind[T]) Update(ctx context.Context, c *Client, guid string, body any) (T, error) {
	var out T
	_, err := c.call(ctx, http.MethodPatch, k.Path+"/"+escape(guid), body, &out)
	return out, err
}

// Delete deletes one and waits until it is gone.
func (k Kind[T]) Delete(ctx context.Context, c *Client, guid string) error {
	return c.remove(ctx, k.Path+"/"+escape(guid))
}

// Relate adds resources to a relationship of one.
func (k Kind[T]) Relate(ctx context.Context, c *Client, guid string, to Relation) error {
	return c.relate(ctx, k.Path+"/"+escape(guid), to)
}

// Unrelate takes a resource out of a relationship of one.
func (k Kind[T]) Unrelate(ctx context.Context, c *Client, guid string, to Relation) error {
	return c.unrelate(ctx, k.Path+"/"+escape(guid), to)
}

// Relation is a relationship of a resource, and the guids at its other end.
type Relation struct {
	Name  string // "organizations"
	GUIDs []string
}

func (r Relation) body() v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, guid := range r.GUIDs {
		out.Data = append(out.Data, v3.GUID{GUID: guid})
	}
	return out
}

// relate adds resources to a relationship of what a path names.
func (c *Client) relate(ctx context.Context, path string, to Relation) error {
	_, err := c.call(ctx, http.MethodPost, path+"/relationships/"+to.Name, to.body(), nil)
	return err
}

// unrelate takes resources out of a relationship of what a path names.
func (c *Client) unrelate(ctx context.Context, path string, to Relation) error {
	for _, guid := range to.GUIDs {
		if err := c.remove(ctx, path+"/relationships/"+to.Name+"/"+escape(guid)); err != nil {
			return err
		}
	}
	return nil
}

// Labels reads the labels of what a path names.
func (c *Client) Labels(ctx context.Context, path string) (map[string]*string, error) {
	var out struct {
		Metadata v3.Metadata `json:"metadata"`
	}
	_, err := c.call(ctx, http.MethodGet, path, nil, &out)
	return out.Metadata.Labels, err
}

// SetLabels changes labels of what a path names; null takes one away. It waits where
// that takes a while.
func (c *Client) SetLabels(ctx context.Context, path string, labels map[string]*string) error {
	body := struct {
		Metadata struct {
			Labels map[string]*string `json:"labels"`
		} `json:"metadata"`
	}{}
	body.Metadata.Labels = labels
	h, err := c.call(ctx, http.MethodPatch, path, body, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// EnvVarGroup reads the variables that all instances ("running") or builds
// ("staging") have.
func (c *Client) EnvVarGroup(ctx context.Context, name string) (v3.EnvVarGroup, error) {
	var out v3.EnvVarGroup
	_, err := c.call(ctx, http.MethodGet, "/v3/environment_variable_groups/"+escape(name), nil, &out)
	return out, err
}

// UpdateEnvVarGroup changes such variables; null takes one away.
func (c *Client) UpdateEnvVarGroup(ctx context.Context, name string, vars map[string]*string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/environment_variable_groups/"+escape(name), map[string]any{"var": vars}, nil)
	return err
}

// Segment reads which isolation segment is set at a path; empty for none.
func (c *Client) Segment(ctx context.Context, path string) (string, error) {
	var out v3.Related
	_, err := c.call(ctx, http.MethodGet, path, nil, &out)
	return v3.ToOne{Data: out.Data}.ID(), err
}

// SetSegment sets the isolation segment at a path; an empty one is none.
func (c *Client) SetSegment(ctx context.Context, path, segment string) error {
	_, err := c.call(ctx, http.MethodPatch, path, v3.To(segment), nil)
	return err
}

// OrgSegment is the path of the default isolation segment of an organization.
func OrgSegment(guid string) string {
	return "/v3/organizations/" + escape(guid) + "/relationships/default_isolation_segment"
}

// SpaceSegment is the path of the isolation segment of a space.
func SpaceSegment(guid string) string {
	return "/v3/spaces/" + escape(guid) + "/relationships/isolation_segment"
}

// AppUsage lists what apps took, newest first; since leaves out what is older, if it
// is a time.
func (c *Client) AppUsage(ctx context.Context, since time.Time) ([]v3.AppUsageEvent, error) {
	return list[v3.AppUsageEvent](ctx, c, "/v3/app_usage_events", newestSince(since))
}

// ServiceUsage lists what services took in the same way.
func (c *Client) ServiceUsage(ctx context.Context, since time.Time) ([]v3.ServiceUsageEvent, error) {
	return list[v3.ServiceUsageEvent](ctx, c, "/v3/service_usage_events", newestSince(since))
}

func newestSince(t time.Time) url.Values {
	q := url.Values{"order_by": {"-created_at"}}
	if !t.IsZero() {
		q.Set("created_ats[gte]", t.UTC().Format(time.RFC3339))
	}
	return q
}

// SpaceSSH tells whether a space lets people into the instances of its apps.
func (c *Client) SpaceSSH(ctx context.Context, space string) (bool, error) {
	var out v3.SpaceFeature
	_, err := c.call(ctx, http.MethodGet, "/v3/spaces/"+escape(space)+"/features/"+v3.FeatureSSH, nil, &out)
	return out.Enabled, err
}

// SetSpaceSSH says whether a space does.
func (c *Client) SetSpaceSSH(ctx context.Context, space string, enabled bool) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/spaces/"+escape(space)+"/features/"+v3.FeatureSSH, v3.UpdateSpaceFeature{Enabled: &enabled}, nil)
	return err
}

// UpdateStack changes who may use a stack.
func (c *Client) UpdateStack(ctx context.Context, guid string, body v3.UpdateStack) (v3.Stack, error) {
	var out v3.Stack
	_, err := c.call(ctx, http.MethodPatch, "/v3/stacks/"+escape(guid), body, &out)
	return out, err
}

// SegmentOrgs lists the organizations that may use an isolation segment.
func (c *Client) SegmentOrgs(ctx context.Context, guid string) ([]v3.Organization, error) {
	return list[v3.Organization](ctx, c, IsolationSegments.Path+"/"+escape(guid)+"/organizations", url.Values{"order_by": {"name"}})
}

// AppsByGUID lists the apps that have one of the guids, in all spaces that one sees.
func (c *Client) AppsByGUID(ctx context.Context, guids ...string) ([]v3.App, error) {
	return listByGUID[v3.App](ctx, c, "/v3/apps", guids)
}

// SpaceGroups lists the security groups of a space for one phase, running or staging,
// those for all spaces too.
func (c *Client) SpaceGroups(ctx context.Context, space, phase string) ([]v3.SecurityGroup, error) {
	return list[v3.SecurityGroup](ctx, c, "/v3/spaces/"+escape(space)+"/"+phase+"_security_groups", url.Values{"order_by": {"name"}})
}
