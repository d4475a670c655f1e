package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"runtime"
	"strconv"
)

// maxAmount is how many users one request can add.
const maxAmount = 10_000

// traceDepth limits how many callers an error shows.
const traceDepth = 16

// failure is an error for the client, with the position in the program.
type failure struct {
	Error string   `json:"error"`
	Trace []string `json:"trace"`

	status int
}

// fail describes err at the position of its caller.
func fail(status int, err error) *failure {
	f := &failure{Error: err.Error(), Trace: []string{}, status: status}
	pcs := make([]uintptr, traceDepth)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if frame.Function != "" {
			f.Trace = append(f.Trace, fmt.Sprintf("%s:%d %s", frame.File, frame.Line, frame.Function))
		}
		if !more {
			return f
		}
	}
}

// handler responds to every request with JSON.
func handler(db *users) http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, h func(r *http.Request) (any, *failure)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, f := h(r)
			status := http.StatusOK
			if f != nil {
				v, status = f, f.status
				log.Printf("%s %s: %s", r.Method, r.URL.Path, f.Error)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
		})
	}
	answer("GET /migrate", db.getMigrate)
	answer("GET /users", db.getUsers)
	answer("GET /users/add/{amount}", db.getAdd)
	answer("GET /users/delete", db.getDelete)
	answer("GET /{$}", func(*http.Request) (any, *failure) {
		return map[string][]string{"paths": {"/migrate", "/users/add/{amount}", "/users", "/users/delete"}}, nil
	})
	return mux
}

func (u *users) getMigrate(r *http.Request) (any, *failure) {
	if err := u.migrate(r.Context()); err != nil {
		return nil, fail(http.StatusInternalServerError, err)
	}
	return map[string]bool{"migrated": true}, nil
}

func (u *users) getUsers(r *http.Request) (any, *failure) {
	all, err := u.list(r.Context())
	if err != nil {
		return nil, fail(http.StatusInternalServerError, err)
	}
	return map[string]any{"count": len(all), "users": all}, nil
}

func (u *users) getAdd(r *http.Request) (any, *failure) {
	amount, err := strconv.Atoi(r.PathValue("amount"))
	if err != nil || amount < 1 || amount > maxAmount {
		return nil, fail(http.StatusBadRequest, fmt.Errorf("cannot add users: amount must be a number from 1 to %d, not %q", maxAmount, r.PathValue("amount")))
	}
	added, err := u.add(r.Context(), amount)
	if err != nil {
		return nil, fail(http.StatusInternalServerError, err)
	}
	return map[string]any{"amount": amount, "users added": added}, nil
}

func (u *users) getDelete(r *http.Request) (any, *failure) {
	if err := u.deleteAll(r.Context()); err != nil {
		return nil, fail(http.StatusInternalServerError, err)
	}
	return map[string][]user{"users": {}}, nil
}
