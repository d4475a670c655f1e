package daemon

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
)

// rootHandlers answers requests about the links of the API.
type rootHandlers struct{ *Handlers }

func (h rootHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /{$}", Needs: access.Public, Handler: h.root, Shape: rest.Returns[v3.Root](200)},
		{Pattern: "GET /healthz", Needs: access.Public, Handler: h.healthz, Shape: rest.Returns[map[string]string](200)},
	}
}

// sshClient is the OAuth client that SSH codes are issued to.
const sshClient = "ssh-proxy"

// root lists the URLs of all services. Services that do not exist are null.
func (h rootHandlers) root(*http.Request) (any, error) {
	links := v3.RootLinks{
		Self:              &v3.Link{Href: h.Links.Public.String()},
		CloudControllerV3: &v3.RootLink{Href: h.Links.Href("v3"), Meta: v3.RootMeta{Version: rest.APIVersion}},
		Login:             &v3.Link{Href: h.Links.Href("uaa")},
		UAA:               &v3.Link{Href: h.Links.Href("uaa")},
		LogCache:          &v3.Link{Href: h.Links.Public.String()},
		LogStream:         &v3.Link{Href: h.Links.Public.String()},
		NetworkPolicyV1:   &v3.Link{Href: h.Links.Href("networking", "v1", "external")},
	}
	if groups, err := h.Platform.Registry.RouterGroups(); err != nil {
		return nil, err
	} else if len(groups) > 0 {
		links.Routing = &v3.Link{Href: h.Links.Href("routing")}
	}
	if ssh := h.SSH; ssh != nil {
		links.AppSSH = &v3.RootLink{Href: ssh.For(h.Links.Public.Hostname()), Meta: v3.RootMeta{HostKeyFingerprint: ssh.Fingerprint, OAuthClient: sshClient}}
	}
	return v3.Root{Links: links}, nil
}

func (h rootHandlers) healthz(*http.Request) (any, error) {
	return map[string]string{"status": "ok", "version": h.Version}, nil
}
