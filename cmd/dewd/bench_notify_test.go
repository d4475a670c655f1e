//go:build bench

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/store"
)

// notifyRound is how long each number of clients sends notifications.
const notifyRound = 5 * time.Second

// BenchmarkNotify sends notifications to a user with 1, 10 and 50 clients, and creates
// organizations at the same time. It also reads 10,000 users page by page, from the API
// and from the authorization server.
func BenchmarkNotify(b *testing.B) {
	const users = 10_000
	listen := freeAddress(b)
	c := newCell(b, "--listen", listen)
	c.start()
	c.kill(syscall.SIGTERM)
	seedManyUsers(b, filepath.Join(c.root, "dew.db"), users)
	c.start()
	password, err := os.ReadFile(filepath.Join(c.root, "admin-password"))
	if err != nil {
		b.Fatal(err)
	}
	base := "http://" + listen
	admin := userToken(b, base, "admin", strings.TrimSpace(string(password)))
	admin.base = base
	mailer := clientToken(b, base, "mailer", "mailer-secret")
	mailer.do(204, "PUT", "/notifications", `{"source_name":"Mailer","notifications":{"news":{"description":"News"}}}`)
	one := 0.0
	for _, clients := range []int{1, 10, 50} {
		rate, orgs := notifyLoad(b, mailer, admin, clients)
		if clients == 1 {
			one = rate
		}
		slices.Sort(orgs)
		b.ReportMetric(rate, fmt.Sprintf("requests/s-%d-clients", clients))
		b.ReportMetric(rate/one, fmt.Sprintf("%d-clients/one", clients))
		b.ReportMetric(ms(orgs[len(orgs)/2]), fmt.Sprintf("ms-org-%d-clients", clients))
		b.ReportMetric(ms(orgs[len(orgs)*99/100]), fmt.Sprintf("ms-org-p99-%d-clients", clients))
	}
	b.ReportMetric(readPages(b, admin, "/v3/users?per_page=50&page=%d", users), "s-10000-users-v3")
	b.ReportMetric(readPages(b, admin, "/uaa/Users?count=100&startIndex=%d", users), "s-10000-users-uaa")
	b.ReportMetric(0, "ns/op")
	c.kill(syscall.SIGKILL)
}

// seedManyUsers creates users with addresses, without passwords, and a client.
func seedManyUsers(b *testing.B, path string, n int) {
	b.Helper()
	db, err := store.Open(path, store.Options{Format: storeFormat})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	accounts := auth.NewAccounts(db, bcrypt.MinCost)
	err = db.Update(func(tx *store.Tx) error {
		for i := range n {
			if _, err := accounts.With(tx).CreateUser(auth.NewUser{
				Name: fmt.Sprintf("user-%d", i), Origin: "elsewhere", Email: fmt.Sprintf("user-%d@example.com", i),
			}); err != nil {
				return err
			}
		}
		_, err := accounts.With(tx).CreateClient(auth.NewClient{
			ID: "mailer", Secret: "mailer-secret", GrantTypes: []string{auth.GrantClient}, Authorities: []string{"notifications.manage", "notifications.write"},
		})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// notifyLoad sends notifications for a while. It returns the requests per second, and
// how long it took to create an organization at the same time.
func notifyLoad(b *testing.B, mailer, admin *notifyCaller, clients int) (rate float64, orgs []time.Duration) {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: clients + 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func(c *notifyCaller, path, body string, want int) bool {
		req, err := http.NewRequest("POST", c.base+path, strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return false
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return false
		}
		defer resp.Body.Close()
		var answer bytes.Buffer
		_, err = io.Copy(&answer, resp.Body)
		if err != nil || resp.StatusCode != want {
			b.Errorf("POST %s = %d %s, %v", path, resp.StatusCode, answer.Bytes(), err)
			return false
		}
		return true
	}
	var sent atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for n := range clients {
		wait.Go(func() {
			for time.Since(began) < notifyRound && post(mailer, fmt.Sprintf("/users/user-%d", n), `{"kind_id":"news","subject":"Hello","text":"Some text"}`, 200) {
				sent.Add(1)
			}
		})
	}
	for n := 0; time.Since(began) < notifyRound; n++ {
		start := time.Now()
		if !post(admin, "/v3/organizations", fmt.Sprintf(`{"name":"org-%d-%d"}`, clients, n), 201) {
			break
		}
		orgs = append(orgs, time.Since(start))
		time.Sleep(20 * time.Millisecond) // one user, not a second load
	}
	wait.Wait()
	return float64(sent.Load()) / time.Since(began).Seconds(), orgs
}

// readPages reads all users page by page, and returns the seconds.
func readPages(b *testing.B, c *notifyCaller, path string, users int) float64 {
	b.Helper()
	began := time.Now()
	step := 1
	if strings.Contains(path, "startIndex") {
		step = 100
	}
	read := 0
	for at := 1; ; at += step {
		var page struct {
			Resources []json.RawMessage `json:"resources"`
		}
		if err := json.Unmarshal(c.do(200, "GET", fmt.Sprintf(path, at), ""), &page); err != nil {
			b.Fatal(err)
		}
		if read += len(page.Resources); len(page.Resources) == 0 {
			break
		}
	}
	if read < users {
		b.Errorf("%s: %d users, want %d", path, read, users)
	}
	return time.Since(began).Seconds()
}
