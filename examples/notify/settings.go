package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// settings hold the address of the service, the credentials and the recipients.
type settings struct {
	BaseURL, AuthURL string
	Client, Secret   string
	User             string // guid, empty to send to no single user
	Space, Org       string // guids
	Scope            string
	Email            string
}

// The platform's API inside containers has its own name, and the same port as outside.
const (
	insideName  = "api.dew.internal"
	defaultPort = "8484"
)

// settingsFrom reads the environment. Without other settings, it sends to the app's own
// space and organization.
func settingsFrom(lookup func(string) (string, bool)) (settings, error) {
	get := func(name, otherwise string) string {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
		return otherwise
	}
	var about struct {
		Space string `json:"space_id"`
		Org   string `json:"organization_id"`
		API   string `json:"cf_api"` // URL of the API outside of containers
	}
	if v, ok := lookup("VCAP_APPLICATION"); ok {
		if err := json.Unmarshal([]byte(v), &about); err != nil {
			return settings{}, fmt.Errorf("cannot read VCAP_APPLICATION: %w", err)
		}
	}
	api := strings.TrimSuffix(get("API_URL", insideURL(about.API)), "/")
	s := settings{
		BaseURL: get("NOTIFY_URL", api+"/notify"), AuthURL: get("AUTH_URL", api+"/uaa"),
		Client: get("CLIENT_ID", "notify-example"), Secret: get("CLIENT_SECRET", ""),
		User: get("NOTIFY_USER", ""), Space: get("NOTIFY_SPACE", about.Space), Org: get("NOTIFY_ORG", about.Org),
		Scope: get("NOTIFY_SCOPE", "cloud_controller.admin"), Email: get("NOTIFY_EMAIL", "someone@example.com"),
	}
	if s.Secret == "" {
		return s, fmt.Errorf("cannot get a token: CLIENT_SECRET is not set (it is the secret that the client %s was created with)", s.Client)
	}
	return s, nil
}

// insideURL returns the API's URL in a container, derived from the one outside.
func insideURL(outside string) string {
	port := defaultPort
	if u, err := url.Parse(outside); err == nil && u.Port() != "" {
		port = u.Port()
	}
	return "http://" + net.JoinHostPort(insideName, port)
}
