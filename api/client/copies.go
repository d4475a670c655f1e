package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Packages lists the packages of an app, newest first.
func (c *Client) Packages(ctx context.Context, app string) ([]v3.Package, error) {
	return list[v3.Package](ctx, c, "/v3/apps/"+escape(app)+"/packages", url.Values{"order_by": {"-created_at"}})
}

// CopyPackage gives an app the package of another one.
func (c *Client) CopyPackage(ctx context.Context, source, app string) (v3.Package, error) {
	var p v3.Package
	body := v3.CopyPackage{Relationships: v3.PackageRelationships{App: v3.To(app)}}
	_, err := c.call(ctx, http.MethodPost, "/v3/packages?source_guid="+url.QueryEscape(source), body, &p)
	return p, err
}

// DownloadDroplet writes the files of a droplet as a compressed tar.
func (c *Client) DownloadDroplet(ctx context.Context, guid string, to io.Writer) error {
	resp, err := c.Send(ctx, Request{Method: http.MethodGet, Path: "/v3/droplets/" + escape(guid) + "/download"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return fmt.Errorf("cannot read the answer: %w", err)
		}
		return errorOf(resp.StatusCode, b)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("cannot download the droplet: %w", err)
	}
	return nil
}

// UpdateProcess changes a process.
func (c *Client) UpdateProcess(ctx context.Context, guid string, body v3.UpdateProcess) (v3.Process, error) {
	var p v3.Process
	_, err := c.call(ctx, http.MethodPatch, "/v3/processes/"+escape(guid), body, &p)
	return p, err
}

// FeatureFlags lists what administrators can switch.
func (c *Client) FeatureFlags(ctx context.Context) ([]v3.FeatureFlag, error) {
	return list[v3.FeatureFlag](ctx, c, "/v3/feature_flags", nil)
}

// SetFeatureFlag switches a feature.
func (c *Client) SetFeatureFlag(ctx context.Context, name string, enabled bool) (v3.FeatureFlag, error) {
	var f v3.FeatureFlag
	_, err := c.call(ctx, http.MethodPatch, "/v3/feature_flags/"+escape(name), v3.UpdateFeatureFlag{Enabled: &enabled}, &f)
	return f, err
}
