// Command testapp is the program that the engine's tests run inside instances. Its
// first argument chooses what it does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: testapp WORD [ARG...]")
	}
	arg := func(n int) string {
		if len(os.Args) <= n+1 {
			fail("argument missing: %s", strings.Join(os.Args, " "))
		}
		return os.Args[n+1]
	}
	number := func(n int) int {
		v, err := strconv.Atoi(arg(n))
		if err != nil {
			fail("%v", err)
		}
		return v
	}
	switch os.Args[1] {
	case "alloc": // MiB
		alloc(number(1))
	case "child-alloc": // MiB, in a child; the parent keeps running
		childAlloc(arg(1))
	case "serve": // address
		serve(arg(1))
	case "print": // lines, then exits
		print(number(1))
	case "flood": // lines without a pause, forever
		flood()
	case "count": // lines, lines per second (0: as fast as possible); then sleeps
		count(number(1), number(2))
	case "last-words": // leaves a child with its output, prints without a newline and exits 3
		lastWords()
	case "facts": // what it can see, as one JSON line
		facts()
	case "fetch": // URL, prints the body
		fetch(arg(1))
	case "dial": // network address seconds, prints the result
		dial(arg(1), arg(2), time.Duration(number(3))*time.Second)
	case "sleep":
		fmt.Println("sleeping")
		sleep()
	default:
		fail("unknown word %s", os.Args[1])
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(2)
}

func sleep() { time.Sleep(time.Hour) }

func alloc(mib int) {
	fmt.Printf("allocating %d MiB\n", mib)
	var kept [][]byte
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	fmt.Printf("allocated %d MiB\n", len(kept))
	time.Sleep(time.Hour)
}

func childAlloc(mib string) {
	c := exec.Command(os.Args[0], "alloc", mib)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	err := c.Run()
	fmt.Printf("child ended: %v\n", err)
	time.Sleep(time.Hour)
}

// serve answers 200 at / and /health until it receives a request for /sicken.
func serve(address string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		fmt.Println("got SIGTERM")
		os.Exit(0)
	}()
	var sick atomic.Bool
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	http.HandleFunc("/sicken", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	kind := "tcp"
	if strings.HasPrefix(address, "/") {
		kind = "unix"
	}
	l, err := net.Listen(kind, address)
	if err != nil {
		fail("%v", err)
	}
	fmt.Printf("listening on %s\n", address)
	fail("%v", http.Serve(l, nil))
}

func print(n int) {
	w := bufio.NewWriterSize(os.Stdout, 1<<16)
	for i := range n {
		fmt.Fprintf(w, "line %d\n", i)
	}
	w.Flush()
}

func flood() {
	w := bufio.NewWriterSize(os.Stdout, 1<<16)
	for i := 0; ; i++ {
		fmt.Fprintf(w, "line %09d of the flood that does not end by itself and goes on and on and on\n", i)
	}
}

func fetch(url string) {
	c := http.Client{Timeout: time.Minute}
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		c.Transport = &http.Transport{Dial: func(string, string) (net.Conn, error) { return net.Dial("unix", path) }}
		url = "http://unix/"
	}
	for range 2000 { // the server can still be starting
		r, err := c.Get(url)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Printf("fetched %d %s\n", r.StatusCode, strings.TrimSpace(string(b)))
		return
	}
	fail("cannot fetch %s", url)
}

func dial(network, address string, patience time.Duration) {
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		fmt.Printf("dial %s: %v\n", address, err)
		return
	}
	c.Close()
	fmt.Printf("dial %s: connected\n", address)
}

func facts() {
	link := func(p string) string { s, _ := os.Readlink(p); return s }
	status := map[string]string{}
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			status[k] = strings.TrimSpace(v)
		}
	}
	var pids []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	env := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	writable := func(p string) bool {
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			f.Close()
		}
		return err == nil
	}
	readable := func(p string) bool {
		b, err := os.ReadFile(p)
		return err == nil && len(b) > 0 // a masked file can be opened, and is empty
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"uid": os.Getuid(), "net": link("/proc/self/ns/net"), "pidns": link("/proc/self/ns/pid"),
		"caps": status["CapEff"], "bounding": status["CapBnd"], "nonewprivs": status["NoNewPrivs"], "seccomp": status["Seccomp"],
		"pids": pids, "env": env, "cgroup": readAll("/proc/self/cgroup"),
		"usr_writable": writable("/usr/dew-was-here"), "app_writable": writable("/home/vcap/app/dew-was-here"),
		"kcore_readable": readable("/proc/kcore"), "sysctl_writable": writable("/proc/sys/kernel/hostname"),
		"shadow_readable": readable("/etc/shadow"),
	})
}

func readAll(p string) string {
	b, _ := os.ReadFile(p)
	return string(b)
}
