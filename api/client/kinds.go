package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Kind is a kind of named resources at one path.
type Kind[T any] struct {
	Noun string // name for people, such as "org quota"
	Path string // path of the resources
	Name func(T) string
	GUID func(T) string

	name, value string // of a filter, if there is one
}

// The kinds of resources that are only records in dew.
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

// Where returns the kind with a filter. It lists and finds only resources that match.
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

// List lists the resources by name.
func (k Kind[T]) List(ctx context.Context, c *Client) ([]T, error) {
	return list[T](ctx, c.transport, k.Path, k.query("order_by", "name"))
}

// ByName finds a resource, or fails with *Missing.
func (k Kind[T]) ByName(ctx context.Context, c *Client, name string) (T, error) {
	all, err := list[T](ctx, c.transport, k.Path, k.query("names", filter(name)))
	return first(all, err, &Missing{Kind: k.Noun, Name: name})
}

// Create creates a resource.
func (k Kind[T]) Create(ctx context.Context, c *Client, body any) (T, error) {
	var out T
	_, err := c.call(ctx, http.MethodPost, k.Path, body, &out)
	return out, err
}

// Update changes a resource.
func (k Kind[T]) Update(ctx context.Context, c *Client, guid string, body any) (T, error) {
	var out T
	_, err := c.call(ctx, http.MethodPatch, k.Path+"/"+escape(guid), body, &out)
	return out, err
}

// Delete deletes a resource and waits until it is gone.
func (k Kind[T]) Delete(ctx context.Context, c *Client, guid string) error {
	return c.remove(ctx, k.Path+"/"+escape(guid))
}

// Relate adds resources to a relationship of a resource.
func (k Kind[T]) Relate(ctx context.Context, c *Client, guid string, to Relation) error {
	return c.relate(ctx, k.Path+"/"+escape(guid), to)
}

// Unrelate removes resources from a relationship of a resource.
func (k Kind[T]) Unrelate(ctx context.Context, c *Client, guid string, to Relation) error {
	return c.unrelate(ctx, k.Path+"/"+escape(guid), to)
}

// Relation is a relationship of a resource, and the guids of the related resources.
type Relation struct {
	Name  string // such as "organizations"
	GUIDs []string
}

func (r Relation) body() v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, guid := range r.GUIDs {
		out.Data = append(out.Data, v3.GUID{GUID: guid})
	}
	return out
}
