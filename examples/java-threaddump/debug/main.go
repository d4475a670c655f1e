// Command debug is a sidecar that asks the Java process beside it for a thread
// dump, which the JVM then writes to its own standard output. Only those who know
// the password may ask.
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

// settings say where the sidecar listens and whom it answers.
type settings struct {
	Port           string
	User, Password string
	Made           bool // the password is made up
}

// settingsFrom reads DEBUG_PORT, DEBUG_USER and DEBUG_PASSWORD. Where nobody chose
// a password one is made up: without any the app could not be pushed as it is, or
// everybody could ask.
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
		if err != nil || strings.TrimSpace(string(b)) != "java" { // it may have ended meanwhile
			continue
		}
		return strconv.Atoi(filepath.Base(filepath.Dir(name)))
	}
	return 0, errors.New("no Java process is here")
}
