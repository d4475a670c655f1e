package api

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
)

// rootEndpoints are the endpoints of this file.
func (s *Server) rootEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /{$}", Needs: access.Public, Handler: s.root, Shape: rest.Returns[v3.Root](200)},
		{Pattern: "GET /healthz", Needs: access.Public, Handler: s.healthz, Shape: rest.Returns[map[string]string](200)},
	}
}

// sshClient is the client that codes for the SSH door are given to.
const sshClient = "ssh-proxy"

// root tells where everything is. Doors that do not exist are null.
func (s *Server) root(*http.Request) (any, error) {
	links := v3.RootLinks{
		Self:              &v3.Link{Href: s.links.Public.String()},
		CloudControllerV3: &v3.RootLink{Href: s.links.Href("v3"), Meta: v3.RootMeta{Version: rest.APIVersion}},
		Login:             &v3.Link{Href: s.links.Href("uaa")},
		UAA:               &v3.Link{Href: s.links.Href("uaa")},
		LogCache:          &v3.Link{Href: s.links.Public.String()},
		LogStream:         &v3.Link{Href: s.links.Href("stream", "v1")},
	}
	if groups, err := s.c.Registry.RouterGroups(); err != nil {
		return nil, err
	} else if len(groups) > 0 {
		links.Routing = &v3.Link{Href: s.links.Href("routing")}
	}
	if door := s.c.SSH; door != nil {
		links.AppSSH = &v3.RootLink{Href: door.Address, Meta: v3.RootMeta{HostKeyFingerprint: door.Fingerprint, OAuthClient: sshClient}}
	}
	return v3.Root{Links: links}, nil
}

func (s *Server) healthz(*http.Request) (any, error) {
	return map[string]string{"status": "ok", "version": s.c.Version}, nil
}
