// Command counter is the app of the fault suite. It prints numbered lines, each in one
// write, and tells over HTTP how many it has printed.
//
//	counter main              on $PORT; the answer has the count of its sidecar as well
//	counter sidecar ADDRESS   on an address inside the instance
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// sidecar is the address of the sidecar inside the instance.
const sidecar = "127.0.0.1:7777"

// counter prints lines and counts them.
type counter struct {
	role, instance string

	mu      sync.Mutex // held during a write, so that the numbers are in order
	printed int
}

func (c *counter) print() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintf(os.Stdout, "%s %s %d %s\n", c.role, c.instance, c.printed+1, strings.Repeat("x", c.printed%80)); err != nil {
		os.Exit(4) // its output is gone
	}
	c.printed++
	return c.printed
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: counter main | sidecar ADDRESS")
		os.Exit(2)
	}
	c := &counter{role: os.Args[1], instance: os.Getenv("CF_INSTANCE_GUID")}
	address := ":" + os.Getenv("PORT")
	if c.role == "sidecar" {
		address = os.Args[2]
	}
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			c.print()
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.print()) })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		answer := map[string]any{"instance": c.instance, "index": os.Getenv("CF_INSTANCE_INDEX"), "main": c.print(), "sidecar": json.RawMessage(beside())}
		_ = json.NewEncoder(w).Encode(answer)
	})
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "counter:", s.ListenAndServe())
	os.Exit(3)
}

// beside returns the count of the sidecar, or 0 if it does not answer.
func beside() string {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + sidecar + "/count")
	if err != nil {
		return "0"
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 32))
	if err != nil || len(b) == 0 {
		return "0"
	}
	return string(b)
}
