package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// The kinds that this program registers.
const (
	kindNews  = "example-news"
	kindAlarm = "example-alarm" // critical: users cannot unsubscribe from it
)

// maxAnswer limits the size of a response.
const maxAnswer = 1 << 20

// result is the result of one request to send.
type result struct {
	To       string `json:"to"` // user, space, organization, everyone, scope or email
	Messages int    `json:"messages"`
	Skipped  string `json:"skipped,omitempty"` // why nothing was sent
}

// sendAll gets a token, registers two kinds and sends to each kind of recipient.
func sendAll(ctx context.Context, s settings) ([]result, error) {
	token, err := getToken(ctx, s)
	if err != nil {
		return nil, err
	}
	c := caller{base: s.BaseURL, token: token}
	err = c.call(ctx, http.MethodPut, "/notifications", map[string]any{
		"source_name": "The notify example",
		"notifications": map[string]any{
			kindNews:  map[string]any{"description": "News of the example", "critical": false},
			kindAlarm: map[string]any{"description": "Alarms of the example", "critical": true},
		},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot register the kinds: %w", err)
	}
	var results []result
	for _, r := range recipients(s) {
		sent, err := c.send(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("cannot send to %s: %w", r.to, err)
		}
		results = append(results, sent)
	}
	return results, nil
}

// recipient is one kind of recipient, and its message.
type recipient struct {
	to, path, missing string // missing names the setting without which nothing is sent
	kind              string
	extra             map[string]any
}

func recipients(s settings) []recipient {
	return []recipient{
		{to: "user", path: at("/users/", s.User), missing: "NOTIFY_USER", kind: kindNews},
		{to: "space", path: at("/spaces/", s.Space), missing: "NOTIFY_SPACE", kind: kindNews},
		{to: "organization", path: at("/organizations/", s.Org), missing: "NOTIFY_ORG", kind: kindNews},
		{to: "everyone", path: "/everyone", kind: kindAlarm},
		{to: "scope", path: at("/uaa_scopes/", s.Scope), missing: "NOTIFY_SCOPE", kind: kindNews},
		{to: "email", path: "/emails", kind: kindNews, extra: map[string]any{"to": s.Email}},
	}
}

func at(path, name string) string {
	if name == "" {
		return ""
	}
	return path + url.PathEscape(name)
}

// caller calls the notification service.
type caller struct{ base, token string }

func (c caller) send(ctx context.Context, r recipient) (result, error) {
	out := result{To: r.to}
	if r.path == "" {
		out.Skipped = r.missing + " is not set"
		return out, nil
	}
	body := map[string]any{
		"kind_id": r.kind, "subject": "Hello to the " + r.to, "reply_to": "support@example.com",
		"text": "This is the notify example.", "html": "<h1>Hello</h1><p>This is the <em>notify</em> example.</p>",
	}
	for k, v := range r.extra {
		body[k] = v
	}
	var messages []struct {
		Status string `json:"status"`
	}
	err := c.call(ctx, http.MethodPost, r.path, body, &messages)
	out.Messages = len(messages)
	return out, err
}

func (c caller) call(ctx context.Context, method, path string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	return do(req, out)
}

// getToken requests a token with the client credentials grant.
func getToken(ctx context.Context, s settings) (string, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.AuthURL+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.SetBasicAuth(url.QueryEscape(s.Client), url.QueryEscape(s.Secret))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var body struct {
		Token string `json:"access_token"`
	}
	if err := do(req, &body); err != nil {
		return "", fmt.Errorf("cannot get a token for client %s: %w", s.Client, err)
	}
	return body.Token, nil
}

// do sends a request and reads the response into out, which can be nil.
func do(req *http.Request, out any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
