// Command counter is the app of the fault suite. It prints numbered lines, $LINES per second
// after a request to /lines and few otherwise, and tells over HTTP how many it has printed.
//
//	counter main              on $PORT; the answer has the count of its sidecar as well
//	counter sidecar ADDRESS   on an address inside the instance
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
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
	asked   time.Time // the newest request to /lines
}

// mostTogether is the number of lines that are surely shorter than PIPE_BUF. A pipe takes
// such a write whole, so a process that is killed leaves no cut line.
const mostTogether = 20

// print prints at most mostTogether lines in one write.
func (c *counter) print(lines int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b bytes.Buffer
	for n := c.printed + 1; n <= c.printed+lines; n++ {
		fmt.Fprintf(&b, "%s %s %d %s\n", c.role, c.instance, n, strings.Repeat("x", n%80))
	}
	if _, err := os.Stdout.Write(b.Bytes()); err != nil {
		os.Exit(4) // its output is gone
	}
	c.printed += lines
	return c.printed
}

// beats is the number of times per second that lines are printed.
const beats = 10

// asked is the time after a request to /lines in which a process prints all its lines.
// After that it prints one line per beat, so that a client can hold it back.
const asked = 5 * time.Second

// ask starts the time in which the process prints all its lines.
func (c *counter) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Now()
}

func (c *counter) isAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) < asked
}

// tick prints lines all the time.
func (c *counter) tick(perSecond int) {
	for range time.Tick(time.Second / beats) {
		left := 1
		if c.isAsked() {
			left = max(1, perSecond/beats)
		}
		for ; left > 0; left -= mostTogether {
			c.print(min(left, mostTogether))
		}
	}
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
	lines, _ := strconv.Atoi(os.Getenv("LINES")) // 0 for the lowest rate
	go c.tick(lines)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/count/lines" {
			c.ask()
		}
		fmt.Fprint(w, c.print(1))
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lines" {
			c.ask()
		}
		answer := map[string]any{"instance": c.instance, "index": os.Getenv("CF_INSTANCE_INDEX"), "main": c.print(1), "sidecar": json.RawMessage(beside(r.URL.Path))}
		_ = json.NewEncoder(w).Encode(answer)
	})
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "counter:", s.ListenAndServe())
	os.Exit(3)
}

// beside returns the count of the sidecar, or 0 if it does not answer.
func beside(path string) string {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + sidecar + "/count" + path)
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
