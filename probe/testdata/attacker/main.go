// Command attacker is an app that tries to leave its container. It answers requests with
// the result of one attempt: the name of the error, or done.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempts are what a request can ask for.
var attempts = map[string]func(q url.Values) string{}

// inherited has the targets of the files that were open at the start.
var inherited = openFiles()

func main() {
	if len(os.Args) > 1 {
		return // a child of an attempt
	}
	fmt.Println(os.Getenv("GREETING")) // the secret line in the log of the victim
	register()
	http.HandleFunc("/try/{name}", func(w http.ResponseWriter, r *http.Request) {
		try, ok := attempts[r.PathValue("name")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, try(r.URL.Query()))
	})
	http.HandleFunc("/", echo)
	server := &http.Server{Addr: ":" + os.Getenv("PORT")} //nolint:gosec // the clients are tests
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// echo answers with the request as the app sees it.
func echo(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]any{
		"app": os.Getenv("NAME"), "method": r.Method, "uri": r.RequestURI, "host": r.Host, "header": r.Header,
	})
}

func register() {
	registerKernel()
	registerFiles()
	registerNetwork()
	registerOutput()
}

// result names an error, or returns done.
func result(err error) string {
	var no syscall.Errno
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &no):
		return unix.ErrnoName(no)
	}
	return err.Error()
}

// call makes a system call of which only the error counts.
func call(number uintptr, args ...uintptr) string {
	var a [6]uintptr
	copy(a[:], args)
	_, _, no := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if no == 0 {
		return "done"
	}
	return unix.ErrnoName(no)
}

// all joins the different results of several attempts.
func all(results ...string) string {
	slices.Sort(results)
	return strings.Join(slices.Compact(results), ", ")
}

func openFiles() []string {
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, name := range names {
		to, err := os.Readlink(name)
		if err != nil {
			continue // the folder itself is closed now
		}
		if to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" {
			continue // the run time of Go opened it to read the folder
		}
		kind, _, _ := strings.Cut(to, ":[")
		out = append(out, kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
