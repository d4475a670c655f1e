package client

import (
	"bytes"
	"context"
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

func manifest(path string, yaml []byte) Request {
	return Request{
		Method: http.MethodPost, Path: path, Body: bytes.NewReader(yaml),
		Header: http.Header{"Content-Type": {v3.ManifestType}, "Accept": {"application/json"}},
	}
}

// DiffManifest tells what applying the manifest would change.
func (c *Client) DiffManifest(ctx context.Context, space string, yaml []byte) ([]v3.Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var d v3.ManifestDiff
	_, err := c.exchange(ctx, manifest("/v3/spaces/"+escape(space)+"/manifest_diff", yaml), &d)
	return d.Diff, err
}

// ApplyManifest applies the manifest, all of it or nothing, and waits for it.
func (c *Client) ApplyManifest(ctx context.Context, space string, yaml []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h, err := c.exchange(ctx, manifest("/v3/spaces/"+escape(space)+"/actions/apply_manifest", yaml), nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}
