package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// apiVersion is the platform's version that clients may expect. Newer ones
// promise process instances embedded in lists of processes.
const apiVersion = "3.180.0"

// root tells where everything is. Doors that do not exist are null.
func (s *Server) root(*http.Request) (any, error) {
	return v3.Root{Links: v3.RootLinks{
		Self:              &v3.Link{Href: s.public.String()},
		CloudControllerV3: &v3.RootLink{Href: s.href("v3"), Meta: v3.RootMeta{Version: apiVersion}},
		LogCache:          &v3.Link{Href: s.public.String()},
		LogStream:         &v3.Link{Href: s.href("stream", "v1")},
	}}, nil
}

func (s *Server) healthz(*http.Request) (any, error) {
	return map[string]string{"status": "ok", "version": s.c.Version}, nil
}
