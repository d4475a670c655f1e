// Command routeapp is the app of the routes in dewd's tests.
//
//	routeapp web            on 0.0.0.0:$PORT
//	routeapp side ADDRESS   a sidecar on its own address
package main

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // what a WebSocket's greeting is made of
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "routeapp:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: routeapp web | side ADDRESS")
	}
	address, name := "0.0.0.0:"+os.Getenv("PORT"), "web "+os.Getenv("CF_INSTANCE_INDEX")
	if args[0] == "side" {
		address, name = args[1], "side"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", name, r.Proto) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	mux.HandleFunc("/sink", sink)
	mux.HandleFunc("/zeros", zeros)
	mux.HandleFunc("/slow", slow)
	mux.HandleFunc("/fetch", fetch)
	mux.HandleFunc("/print", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(r.FormValue("text")) })
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	mux.HandleFunc("/address", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getenv("CF_INSTANCE_INTERNAL_IP")) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s=%s", r.FormValue("name"), os.Getenv(r.FormValue("name")))
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, r.FormValue("path")) })
	mux.HandleFunc("/ready", ready)
	mux.HandleFunc("/ws", webSocket)
	mux.HandleFunc("/guard", guard)
	s := &http.Server{Addr: address, Handler: mux, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s.ListenAndServe()
}

// ready answers the readiness check. If the file exists, the app is not ready.
func ready(w http.ResponseWriter, _ *http.Request) {
	if _, err := os.Stat("/tmp/unready"); err == nil {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}
}

// guard is a route service. It forwards requests with the right Authorization header.
func guard(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "word" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	req, err := http.NewRequest(r.Method, r.Header.Get("X-CF-Forwarded-Url"), r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req.Header, req.ContentLength = r.Header.Clone(), r.ContentLength
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	w.Header().Set("X-Through", "the guard")
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// sink responds with the number of bytes in the request.
func sink(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, n)
}

// zeros sends ?n= bytes.
func zeros(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	for buf := make([]byte, 64<<10); n > 0; {
		m, err := w.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return
		}
		n -= int64(m)
	}
}

// slow sends the start of a response, and the rest after ?for=.
func slow(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.FormValue("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, "begun ")
	_ = http.NewResponseController(w).Flush()
	time.Sleep(d)
	fmt.Fprint(w, "done")
}

// fetch requests ?url= from inside the container.
func fetch(w http.ResponseWriter, r *http.Request) {
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get(r.FormValue("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// webSocket echoes every small frame, unmasked, until one that closes the connection.
func webSocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see above
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	for {
		frame, err := readFrame(rw.Reader)
		if err != nil {
			return
		}
		if _, err := c.Write(frame); err != nil || frame[0]&0xf == 8 {
			return
		}
	}
}

func readFrame(r *bufio.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(head[1] & 0x7f)
	out := []byte{head[0], byte(n)}
	if n == 126 {
		var long [2]byte
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return nil, err
		}
		n = int(binary.BigEndian.Uint16(long[:]))
		out = append(out, long[:]...)
	}
	masked := make([]byte, 4+n)
	if _, err := io.ReadFull(r, masked); err != nil {
		return nil, err
	}
	for i, b := range masked[4:] {
		out = append(out, b^masked[i%4])
	}
	return out, nil
}
