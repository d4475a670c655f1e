package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// Status reads what the daemon is and does.
func (c *Client) Status(ctx context.Context) (v3.Status, error) {
	var s v3.Status
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/status", nil, &s)
	return s, err
}

// Crashes lists all exit records of an app, newest first.
func (c *Client) Crashes(ctx context.Context, app string) ([]v3.Crash, error) {
	all, _, err := c.NewestCrashes(ctx, app, 0)
	return all, err
}

// NewestCrashes lists the newest exit records of an app, count at most, and tells
// how many there are; 0: all.
func (c *Client) NewestCrashes(ctx context.Context, app string, count int) (newest []v3.Crash, total int, err error) {
	q := url.Values{"per_page": {allPages}}
	if most, _ := strconv.Atoi(allPages); count > 0 && count < most {
		q.Set("per_page", strconv.Itoa(count))
	}
	for next := "/dew/v1/apps/" + escape(app) + "/crashes?" + q.Encode(); next != ""; {
		var page v3.Crashes
		if _, err := c.call(ctx, http.MethodGet, next, nil, &page); err != nil {
			return nil, 0, err
		}
		newest = append(newest, page.Crashes...)
		total = max(page.Pagination.TotalResults, len(newest)) // an older dewd has no pages
		next = ""
		if page.Pagination.Next != nil && (count == 0 || len(newest) < count) {
			next = local(page.Pagination.Next.Href)
		}
	}
	if count > 0 {
		newest = newest[:min(count, len(newest))]
	}
	return newest, total, nil
}

// Kill sends a signal to one process of an instance.
func (c *Client) Kill(ctx context.Context, process string, k v3.Kill) error {
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/processes/"+escape(process)+"/kill", k, nil)
	return err
}

// Shutdown lets the daemon leave.
func (c *Client) Shutdown(ctx context.Context, s v3.Shutdown) error {
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/shutdown", s, nil)
	return err
}

// AdminToken gives a token of the administrator, at the socket alone.
func (c *Client) AdminToken(ctx context.Context) (string, error) {
	var t v3.LocalToken
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/token", nil, &t)
	return t.Token, err
}

// Credentials reads how other programs reach the daemon as its administrator.
func (c *Client) Credentials(ctx context.Context) (v3.Credentials, error) {
	var cr v3.Credentials
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/credentials", nil, &cr)
	return cr, err
}
