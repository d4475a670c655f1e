package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ask sends a request and decodes the response.
func ask(t *testing.T, h http.Handler, path string) (int, map[string]any) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	var body map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, rec.Body)
	}
	return rec.Code, body
}

// wantFailure checks for an error with a trace that leads to this program.
func wantFailure(t *testing.T, h http.Handler, path string, status int) {
	t.Helper()
	code, body := ask(t, h, path)
	message, _ := body["error"].(string)
	trace, _ := body["trace"].([]any)
	if code != status || message == "" || len(trace) == 0 || len(body) != 2 {
		t.Fatalf("GET %s = %d %v, want %d with error and trace", path, code, body, status)
	}
	if first, _ := trace[0].(string); !strings.Contains(first, "handler.go:") {
		t.Errorf("GET %s: trace begins with %q, want the place in handler.go", path, first)
	}
}

func TestDatabaseAway(t *testing.T) {
	const port = "1" // no test ever gets that one
	for _, driver := range []string{"postgres", "mariadb"} {
		db, err := openUsers(settings{Driver: driver, Host: "127.0.0.1", Port: port, Database: "d", Username: "u", Password: "hidden"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.close()
		h := handler(db)
		for _, path := range []string{"/migrate", "/users", "/users/add/1", "/users/delete"} {
			wantFailure(t, h, path, http.StatusInternalServerError)
		}
		for _, amount := range []string{"0", "-1", "10001", "many", "1.5", "99999999999999999999"} {
			wantFailure(t, h, "/users/add/"+amount, http.StatusBadRequest)
		}
		if _, body := ask(t, h, "/users"); strings.Contains(body["error"].(string), "hidden") {
			t.Errorf("the error tells the password: %v", body)
		}
	}
}

func TestGenerateUser(t *testing.T) {
	a, b := generateUser(1), generateUser(2)
	if a.Email == b.Email || a.Password == b.Password {
		t.Errorf("made up twice: %+v, %+v", a, b)
	}
	for _, u := range []user{a, b} {
		if u.FirstName == "" || u.LastName == "" || len(u.Birthday) != len("1984-05-17") || !strings.Contains(u.Email, "@") || u.Password == "" {
			t.Errorf("made up %+v, something is missing", u)
		}
	}
}
