package routes

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/netpolicy"
)

// networkPolicyHandlers answers requests about network policies, as the policy server of
// Cloud Foundry does.
type networkPolicyHandlers struct{ *Handlers }

func (h networkPolicyHandlers) endpoints() []rest.Endpoint {
	const path = "/networking/v1/external/policies"
	changes := rest.Returns[struct{}](200).Or(rest.Returns[v3.NetworkPolicyError](400)).Or(rest.Returns[v3.NetworkPolicyError](403)).Reads(rest.JSON[v3.NetworkPolicies]())
	return []rest.Endpoint{
		{Pattern: "GET " + path, Needs: access.Authenticated, Handler: h.listPolicies, Shape: rest.Returns[v3.NetworkPolicies](200).Query("id", "source_id", "dest_id")},
		{Pattern: "POST " + path, Needs: access.Authenticated, Handler: h.changePolicies(h.create), Shape: changes}, // the body names the apps
		{Pattern: "POST " + path + "/delete", Needs: access.Authenticated, Handler: h.changePolicies(h.remove), Shape: changes},
	}
}

// listPolicies lists the policies between apps that the caller develops. The policy
// server has no pages.
func (h networkPolicyHandlers) listPolicies(r *http.Request) (any, error) {
	values := r.URL.Query()
	for name := range values {
		if !slices.Contains([]string{"id", "source_id", "dest_id"}, name) {
			return nil, rest.BadQuery("Unknown query parameter(s): '%s'. Valid parameters are: 'id', 'source_id', 'dest_id'", name)
		}
	}
	ids := func(name string) []string { return strings.Split(values.Get(name), ",") }
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Policies.All()
	if err != nil {
		return nil, err
	}
	out := v3.NetworkPolicies{Policies: []v3.NetworkPolicy{}}
	for _, p := range all {
		switch {
		case values.Has("id") && !slices.Contains(ids("id"), p.Source) && !slices.Contains(ids("id"), p.Destination),
			values.Has("source_id") && !slices.Contains(ids("source_id"), p.Source),
			values.Has("dest_id") && !slices.Contains(ids("dest_id"), p.Destination):
			continue
		}
		visible, err := h.develops(perms, p, perms.All)
		if err != nil {
			return nil, err
		}
		if visible {
			out.Policies = append(out.Policies, presentPolicy(p))
		}
	}
	out.Total = len(out.Policies)
	return out, nil
}

// develops reports whether both apps of a policy exist, and the caller develops both.
func (h networkPolicyHandlers) develops(perms access.Permissions, p netpolicy.Policy, all bool) (bool, error) {
	for _, guid := range []string{p.Source, p.Destination} {
		a, err := h.Platform.Registry.App(guid)
		if errors.Is(err, app.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !all && !perms.Can(access.Develop, a.Space) {
			return false, nil
		}
	}
	return true, nil
}

// checkSuspended refuses a policy of an app in a suspended org.
func (h networkPolicyHandlers) checkSuspended(perms access.Permissions, p netpolicy.Policy) error {
	for _, guid := range []string{p.Source, p.Destination} {
		a, err := h.Platform.Registry.App(guid)
		if err != nil {
			return err
		}
		space, err := h.Platform.Registry.Space(a.Space)
		if err != nil {
			return err
		}
		if perms.Suspended(space.Org) {
			return access.ErrOrgSuspended
		}
	}
	return nil
}

// changePolicies checks the policies of a body and the caller's permissions.
func (h networkPolicyHandlers) changePolicies(change func(perms access.Permissions, ps []netpolicy.Policy) error) rest.Handler {
	return func(r *http.Request) (any, error) {
		body, err := rest.Decode[v3.NetworkPolicies](r)
		if err != nil {
			return nil, err
		}
		if len(body.Policies) == 0 {
			return policyError(http.StatusBadRequest, "mapper: validate policies: missing policies"), nil
		}
		perms, err := h.Access.Permissions(r.Context())
		if err != nil {
			return nil, err
		}
		var ps []netpolicy.Policy
		for _, one := range body.Policies {
			p := policyOf(one)
			if err := p.Validate(); err != nil {
				return policyError(http.StatusBadRequest, "mapper: validate policies: "+err.Error()), nil
			}
			ok, err := h.develops(perms, p, perms.Admin)
			if err != nil {
				return nil, err
			}
			if !ok {
				return policyError(http.StatusForbidden, "one or more applications cannot be found or accessed"), nil
			}
			if err := h.checkSuspended(perms, p); err != nil {
				return nil, err
			}
			ps = append(ps, p)
		}
		err = change(perms, ps)
		if errors.Is(err, netpolicy.ErrQuota) {
			return policyError(http.StatusForbidden, err.Error()), nil
		}
		return struct{}{}, err
	}
}

func (h networkPolicyHandlers) create(perms access.Permissions, ps []netpolicy.Policy) error {
	return h.Platform.Policies.Add(!perms.Admin, ps...)
}

func (h networkPolicyHandlers) remove(_ access.Permissions, ps []netpolicy.Policy) error {
	return h.Platform.Policies.Remove(ps...)
}

// policyError returns an error in the form of the policy server.
func policyError(status int, text string) rest.Answer {
	title, code := "CF-BadRequest", 1004
	if status == http.StatusForbidden {
		title, code = "CF-NotAuthorized", 10003
	}
	return rest.Answer{Status: status, Body: v3.NetworkPolicyError{Error: text, Errors: []v3.Error{{Code: code, Title: title, Detail: text}}}}
}

// policyOf returns the policy of a body. Without an end, the range has one port.
func policyOf(p v3.NetworkPolicy) netpolicy.Policy {
	d := p.Destination
	return netpolicy.Policy{
		Source: p.Source.ID, Destination: d.ID, Protocol: d.Protocol,
		Ports: netpolicy.Ports{First: d.Ports.Start, Last: cmp.Or(d.Ports.End, d.Ports.Start)},
	}
}

func presentPolicy(p netpolicy.Policy) v3.NetworkPolicy {
	return v3.NetworkPolicy{
		Source:      v3.NetworkPolicySource{ID: p.Source},
		Destination: v3.NetworkPolicyDestination{ID: p.Destination, Protocol: p.Protocol, Ports: v3.NetworkPolicyPorts{Start: p.Ports.First, End: p.Ports.Last}},
	}
}
