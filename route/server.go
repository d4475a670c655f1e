package route

import (
	"net/http"
	"time"
)

// Limits towards clients. There is none on the time of a whole request: long
// polls, streams and upgraded connections last as long as both ends want.
const (
	headerTimeout = 10 * time.Second
	keepAlive     = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Server makes the HTTP server in front of the router. A client gets ten seconds to
// send its header and two minutes between requests.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:                      h,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  keepAlive,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the app
	}
}
