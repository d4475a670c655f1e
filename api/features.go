package api

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// featuresEndpoints are the endpoints of this file.
func (s *Server) featuresEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/apps/{guid}/ssh_enabled", Needs: access.Read, Resource: access.App, Handler: s.getSSHEnabled, Shape: rest.Returns[v3.SSHEnabled](200)},
		{Pattern: "GET /v3/apps/{guid}/features", Needs: access.Read, Resource: access.App, Handler: s.listFeatures, Shape: rest.Returns[v3.AppFeatures](200)},
		{Pattern: "GET /v3/apps/{guid}/features/{name}", Needs: access.Read, Resource: access.App, Handler: s.getFeature, Shape: rest.Returns[v3.AppFeature](200)},
		{
			Pattern: "PATCH /v3/apps/{guid}/features/{name}", Needs: access.Support, Resource: access.App, // some are the developers'
			Handler: s.updateFeature, Shape: rest.Returns[v3.AppFeature](200).Reads(rest.JSON[v3.UpdateAppFeature]()),
		},
		{
			Pattern: "POST /dew/v1/ssh-code", Needs: access.Authenticated, // the door decides what it opens
			Handler: s.createSSHCode, Shape: rest.Returns[v3.SSHCode](201),
		},
	}
}

// The reasons that the platform gives for a closed door.
const (
	closedGlobally = "Disabled globally"
	closedInSpace  = "Disabled for space"
	closedInApp    = "Disabled for app"
)

// closed is why nobody enters the instances of an app; empty: somebody may.
func (s *Server) closed(a app.App) (string, error) {
	sp, err := s.c.Registry.Space(a.Space)
	switch {
	case err != nil && !errors.Is(err, app.ErrNotFound):
		return "", err
	case s.c.SSH == nil:
		return closedGlobally, nil
	case sp.NoSSH:
		return closedInSpace, nil
	case a.NoSSH:
		return closedInApp, nil
	}
	return "", nil
}

func (s *Server) getSSHEnabled(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	why, err := s.closed(a)
	return v3.SSHEnabled{Enabled: why == "", Reason: why}, err
}

func (s *Server) listFeatures(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	self := v3.Link{Href: s.links.Href("v3", "apps", a.GUID, "features")}
	return v3.AppFeatures{
		Resources:  []v3.AppFeature{presentSSH(a), presentRevisions(a)},
		Pagination: v3.Pagination{TotalResults: 2, TotalPages: 1, First: self, Last: self},
	}, nil
}

func (s *Server) getFeature(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	return showFeature(a, r.PathValue("name"))
}

func showFeature(a app.App, name string) (any, error) {
	switch name {
	case v3.FeatureSSH:
		return presentSSH(a), nil
	case v3.FeatureRevisions:
		return presentRevisions(a), nil
	}
	return nil, rest.NotFound("Feature")
}

// updateFeature switches a feature. A door into the app is not for its supporters.
func (s *Server) updateFeature(r *http.Request) (any, error) {
	name := r.PathValue("name")
	switch name {
	case v3.FeatureSSH:
		if _, err := s.appInBody(r.Context(), access.Develop, r.PathValue("guid")); err != nil {
			return nil, rest.Missing("App", err)
		}
	case v3.FeatureRevisions:
	default:
		return nil, rest.NotFound("Feature")
	}
	body, err := rest.Decode[v3.UpdateAppFeature](r)
	if err != nil {
		return nil, err
	}
	if body.Enabled == nil {
		return nil, rest.Unprocessable("Enabled must be a boolean")
	}
	request := map[string]any{map[string]string{v3.FeatureSSH: "enable_ssh", v3.FeatureRevisions: "revisions_enabled"}[name]: *body.Enabled}
	a, err := s.changeApp(r, "audit.app.update", request, func(_ platform.Tx, a *app.App) error {
		if name == v3.FeatureSSH {
			a.NoSSH = !*body.Enabled
		} else {
			a.NoRevisions = !*body.Enabled
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return showFeature(a, name)
}

func presentRevisions(a app.App) v3.AppFeature {
	return v3.AppFeature{Name: v3.FeatureRevisions, Description: "Enable versioning of an application", Enabled: !a.NoRevisions}
}

func presentSSH(a app.App) v3.AppFeature {
	return v3.AppFeature{Name: v3.FeatureSSH, Description: "Enable SSHing into the app.", Enabled: !a.NoSSH}
}

// createSSHCode gives whoever asks a code that stands for them at the ssh door.
// What it opens is decided there.
func (s *Server) createSSHCode(r *http.Request) (any, error) {
	if s.c.SSH == nil {
		return nil, rest.Unprocessable("this daemon has no ssh door: start it with --ssh ADDRESS")
	}
	code, err := s.c.Auth.Code(access.Principal(r.Context()))
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: v3.SSHCode{
		Code: code, Address: s.c.SSH.Address, Fingerprint: s.c.SSH.Fingerprint,
	}}, nil
}

// AllowSSH tells why somebody may not enter the instances of an app; nil: they
// may. It takes the right to change what runs, and a door that is open.
func (s *Server) AllowSSH(who auth.Principal, a app.App) error {
	perms, err := s.access.PermissionsOf(who)
	if err != nil {
		return err
	}
	if !access.HasScope(who, http.MethodPost) || !perms.Can(access.Develop, a.Space) || perms.Suspended(perms.OrgOf[a.Space]) {
		return errors.New("there is no such process, or you may not enter it")
	}
	why, err := s.closed(a)
	if err == nil && why != "" {
		err = errors.New("ssh is not enabled for app '" + a.Name + "': " + why)
	}
	return err
}

// RecordSSH keeps that somebody came to the ssh door of an app's instance, and
// whether they were let in: refused says why they were not.
func (s *Server) RecordSSH(who auth.Principal, a app.App, index int, refused error) {
	kind := "audit.app.ssh-authorized"
	if refused != nil {
		kind = "audit.app.ssh-unauthorized"
	}
	err := s.platform.ChangeAs(access.Actor(who), func(w platform.Tx) error {
		return w.Record(kind, a, map[string]any{"index": index})
	})
	if err != nil {
		s.log.Error("cannot record who came to the ssh door", "kind", kind, "app", a.GUID, "err", err)
	}
}
