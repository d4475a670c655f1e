package services

import (
	"net/http"
	"time"
)

// HTTPBroker is a broker that speaks the Open Service Broker API 2.17.
type HTTPBroker struct {
	URL                string
	Username, Password string
	Client             *http.Client  // nil: one of its own
	Timeout            time.Duration // of one request; 0: 60 s
	SkipTLS            bool          // its certificate is not checked; without Client only
}
