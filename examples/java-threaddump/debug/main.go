// Command debug is a sidecar that asks the Java process beside it for a thread
// dump, which the JVM then writes to its own standard output.
package main

import (
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

// defaultPort is where it listens when DEBUG_PORT does not say.
const defaultPort = "8081"

func main() {
	port := os.Getenv("DEBUG_PORT")
	if port == "" {
		port = defaultPort
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /threaddump", threadDump)
	server := &http.Server{Addr: ":" + port, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Println("listening on port " + port)
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func threadDump(w http.ResponseWriter, r *http.Request) {
	fmt.Println(r.Method, r.URL.Path)
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
