package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// rootEndpoints are the endpoints of this file.
func (s *Server) rootEndpoints() []Endpoint {
	return []Endpoint{
		{Pattern: "GET /{$}", Needs: public, Handler: s.root, Shape: gives[v3.Root](200)},
		{Pattern: "GET /healthz", Needs: public, Handler: s.healthz, Shape: gives[map[string]string](200)},
	}
}

// apiVersion is the platform's version that clients may expect. Newer ones than
// 3.211.0 promise what is not here.
const apiVersion = "3.211.0"

// sshClient is the client that codes for the SSH door are given to.
const sshClient = "ssh-proxy"

// root tells where everything is. Doors that do not exist are null.
func (s *Server) root(*http.Request) (any, error) {
	links := v3.RootLinks{
		Self:              &v3.Link{Href: s.links.Public.String()},
		CloudControllerV3: &v3.RootLink{Href: s.links.Href("v3"), Meta: v3.RootMeta{Version: apiVersion}},
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
