package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/fire/world"
)

// The OAuth client that sends notifications.
const mailer, mailerSecret = "fire-mailer", "fire-secret"

// CreateMailer creates the OAuth client for Mails.
func CreateMailer(ctx context.Context, w *world.World) error {
	_, err := w.Client.Users().CreateOAuthClient(ctx, client.OAuthClient{
		ID: mailer, Secret: mailerSecret, GrantTypes: []string{"client_credentials"}, Authorities: []string{"emails.write"},
	})
	return err
}

// Mails sends notifications until ctx is done, each to another address, and notes those
// that dewd accepted.
func Mails(ctx context.Context, w *world.World, l *Ledger) {
	const every = 500 * time.Millisecond
	token := ""
	for n := 1; ; n++ {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		if token == "" {
			var err error
			if token, err = mailToken(ctx, w); err != nil {
				continue
			}
		}
		to := fmt.Sprintf("reader-%d@example.com", n)
		id, err := sendMail(ctx, w, token, to)
		if err != nil {
			token = ""
			l.Count("mails refused", 1)
			continue
		}
		l.mu.Lock()
		l.mails = append(l.mails, Mail{To: to, ID: id})
		l.counts["mails"]++
		l.mu.Unlock()
	}
}

// Mail is a notification that dewd accepted.
type Mail struct{ To, ID string }

// Mails returns the accepted notifications.
func (l *Ledger) Mails() []Mail {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mails)
}

func mailToken(ctx context.Context, w *world.World) (string, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.API+"/uaa/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(mailer, mailerSecret)
	var t struct {
		Token string `json:"access_token"`
	}
	err = call(r, &t)
	return t.Token, err
}

// sendMail sends a notification and returns its ID.
func sendMail(ctx context.Context, w *world.World, token, to string) (string, error) {
	body, err := json.Marshal(map[string]string{"to": to, "subject": "fire", "text": "A notification."})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.API+"/notify/emails", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "bearer "+token)
	var sent []struct {
		ID string `json:"notification_id"`
	}
	if err := call(r, &sent); err != nil {
		return "", err
	}
	if len(sent) != 1 {
		return "", fmt.Errorf("dewd accepted one notification as %d", len(sent))
	}
	return sent[0].ID, nil
}

// Undelivered returns the notifications that dewd does not call delivered.
func Undelivered(ctx context.Context, w *world.World, mails []Mail) (left []Mail, err error) {
	token, err := mailToken(ctx, w)
	if err != nil {
		return nil, err
	}
	for _, m := range mails {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.API+"/notify/messages/"+m.ID, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "bearer "+token)
		var found struct {
			Status string `json:"status"`
		}
		if err := call(r, &found); err != nil {
			return nil, err
		}
		if found.Status != "delivered" {
			left = append(left, m)
		}
	}
	return left, nil
}

// call sends a request and decodes the answer.
func call(r *http.Request, into any) error {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", r.Method, r.URL.Path, resp.Status, b)
	}
	return json.Unmarshal(b, into)
}
