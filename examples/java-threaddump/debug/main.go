// Command debug is a sidecar that requests a thread dump from the Java process in the
// same container. The JVM writes it to its own standard output. The request needs a
// password.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	s := settingsFrom(os.Getenv)
	if s.Made {
		fmt.Printf("DEBUG_PASSWORD is not set: until the next start user %s has the password %s\n", s.User, s.Password)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /threaddump", threadDump)
	server := &http.Server{Addr: ":" + s.Port, Handler: guarded(s, mux), ReadHeaderTimeout: 10 * time.Second}
	fmt.Println("listening on port " + s.Port)
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings hold the sidecar's address and its user and password.
type settings struct {
	Port           string
	User, Password string
	Made           bool // the password is generated
}

// settingsFrom reads DEBUG_PORT, DEBUG_USER and DEBUG_PASSWORD. If there is no
// password, it generates one. Otherwise the app could not be pushed without changes, or
// anyone could request a dump.
func settingsFrom(env func(string) string) settings {
	otherwise := func(name, value string) string {
		if v := env(name); v != "" {
			return v
		}
		return value
	}
	s := settings{Port: otherwise("DEBUG_PORT", "8081"), User: otherwise("DEBUG_USER", "debug"), Password: env("DEBUG_PASSWORD")}
	if s.Password == "" {
		s.Password, s.Made = rand.Text(), true
	}
	return s
}

func threadDump(w http.ResponseWriter, _ *http.Request) {
	pid, err := javaProcess("/proc")
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGQUIT)
	}
	if err != nil {
		http.Error(w, "cannot ask for a thread dump: "+err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintf(w, "asked process %d for a thread dump: see the log of the app\n", pid)
}

// javaProcess finds the JVM. All processes of a container see each other.
func javaProcess(proc string) (int, error) {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(b)) != "java" { // it could have exited by now
			continue
		}
		return strconv.Atoi(filepath.Base(filepath.Dir(name)))
	}
	return 0, errors.New("no Java process is here")
}
