package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Live reads the state and the usage of all visible apps, or of one app if guid is not
// empty.
func (c Processes) Live(ctx context.Context, guid string) (v3.LiveApps, error) {
	path := "/dew/v1/live"
	if guid != "" {
		path += "?" + url.Values{"app_guids": {guid}}.Encode()
	}
	var out v3.LiveApps
	_, err := c.call(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// UsageHistory reads the samples of an app of the last hour.
func (c Processes) UsageHistory(ctx context.Context, guid string) (v3.UsageHistory, error) {
	var out v3.UsageHistory
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/apps/"+escape(guid)+"/usage", nil, &out)
	return out, err
}
