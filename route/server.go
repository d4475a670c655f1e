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
// send its header and two minutes between requests. It speaks HTTP/1.1, and HTTP/2
// to clients that begin with it.
func Server(h http.Handler) *http.Server {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(true)
	speaks.SetHTTP2(true) // where there is TLS
	speaks.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols:                    speaks,
		Handler:                      h,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  keepAlive,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the app
	}
}
