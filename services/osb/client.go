package osb

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/egress"
	"github.com/dewrun/dew/services"
)

// The version and limits of the protocol.
const (
	brokerVersion        = "2.17"
	brokerTimeout        = time.Minute
	maxResponse          = 4 << 20 // bytes, for all responses except the catalog
	maxCatalog           = 32 << 20
	maxBrokerOperationID = 10_000 // bytes
	maxRetryAfter        = 24 * time.Hour
	maxRedirects         = 3
	platform             = "cloudfoundry"
	maxQuotedReply       = 200 // bytes of a malformed response
)

// Error codes of a broker that have a meaning for dewd.
const (
	codeAsync       = "AsyncRequired"
	codeApp         = "RequiresApp"
	codeMaintenance = "MaintenanceInfoConflict"
)

// Broker is a service broker that implements the Open Service Broker API 2.17.
type Broker struct {
	URL                string
	Username, Password string
	Client             *http.Client   // nil: a new client
	Timeout            time.Duration  // for one request (0: a minute)
	SkipTLS            bool           // do not verify its certificate (ignored if Client is set)
	Egress             *egress.Policy // for a URL that no administrator set (nil: any address; ignored if Client is set)
}

// response is a response that was read completely.
type response struct {
	status int
	text   string // of the status
	header http.Header
	body   []byte
}

// brokerRequest is one request to a broker.
type brokerRequest struct {
	method, path string
	query        url.Values
	body         any // nil: none
	by           app.Actor
	limit        int64 // of the response; 0: maxResponse
}

// send sends a request and reads the response. Its error distinguishes a request that
// certainly did not reach the broker from one that may have.
func (h *Broker) send(ctx context.Context, q brokerRequest) (response, error) {
	timeout := h.Timeout
	if timeout == 0 {
		timeout = brokerTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := h.request(ctx, q)
	if err != nil {
		return response{}, &services.BrokerError{Description: "The request to the service broker could not be created: " + err.Error()}
	}
	client, done := h.client()
	defer done()
	res, err := client.Do(req)
	if err != nil {
		return response{}, connectionError(ctx, err)
	}
	defer res.Body.Close()
	limit := q.limit
	if limit == 0 {
		limit = maxResponse
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return response{}, connectionError(ctx, err)
	}
	r := response{status: res.StatusCode, text: res.Status, header: res.Header, body: body}
	if int64(len(body)) > limit {
		return r, &services.BrokerError{
			Status: r.status, Orphan: r.status != http.StatusOK,
			Description: fmt.Sprintf("The service broker returned an invalid response: the response has more than %d bytes", limit),
		}
	}
	return r, nil
}

// client returns the HTTP client to use and a cleanup function to call after the
// request.
func (h *Broker) client() (*http.Client, func()) {
	if h.Client != nil {
		return h.Client, func() {}
	}
	t := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: h.SkipTLS, MinVersion: tls.VersionTLS12}, //nolint:gosec // its owner said so
	}
	var way http.RoundTripper = t
	if h.Egress != nil {
		way = h.Egress.Transport(t, 0)
	}
	c := &http.Client{Transport: way, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		// The password must not be sent to another host. The response to another
		// request is not the response to this one.
		if len(via) > maxRedirects || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme ||
			req.Method != via[0].Method {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	return c, c.CloseIdleConnections
}

func (h *Broker) request(ctx context.Context, q brokerRequest) (*http.Request, error) {
	var body io.Reader
	if q.body != nil {
		raw, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	where := strings.TrimRight(h.URL, "/") + q.path
	if len(q.query) > 0 {
		where += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, where, body)
	if err != nil {
		return nil, fmt.Errorf("cannot create the request: %w", err)
	}
	req.SetBasicAuth(h.Username, h.Password)
	req.Header.Set("X-Broker-API-Version", brokerVersion)
	req.Header.Set("X-Broker-API-Request-Identity", uuid.NewString())
	req.Header.Set("Accept", "application/json")
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.by.GUID != "" {
		who, err := json.Marshal(map[string]string{"user_id": q.by.GUID})
		if err != nil {
			return nil, fmt.Errorf("cannot encode the originating identity: %w", err)
		}
		req.Header.Set("X-Broker-API-Originating-Identity", platform+" "+base64.StdEncoding.EncodeToString(who))
	}
	return req, nil
}

// connectionError returns the error for a request without a response.
func connectionError(ctx context.Context, err error) error {
	var op *net.OpError
	var dns *net.DNSError
	var refused *egress.Refused
	until, bounded := ctx.Deadline()
	switch {
	case errors.As(err, &refused):
		return &services.BrokerError{Description: "The service broker could not be reached: " + refused.Error()}
	// The connection has the same deadline and can report it before ctx does.
	case bounded && !time.Now().Before(until), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &services.BrokerError{Orphan: true, Description: "The request to the service broker timed out"}
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial":
		return &services.BrokerError{Description: "The service broker could not be reached: " + cause(err)}
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return &services.BrokerError{Description: "The certificate of the service broker is not valid: " + cause(err)}
	}
	return &services.BrokerError{Orphan: true, Description: "The connection to the service broker failed: " + cause(err)}
}

// cause returns the error without the address, which can contain data that users must
// not see.
func cause(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// object decodes a response, which must be a JSON object, into v.
func (r response) object(v any) error {
	d := json.NewDecoder(bytes.NewReader(r.body))
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("more than one JSON value")
	}
	trimmed := bytes.TrimSpace(r.body)
	if err == nil && (len(trimmed) == 0 || trimmed[0] != '{') {
		err = errors.New("not a JSON object")
	}
	if err == nil {
		return nil
	}
	why := "expected valid JSON object in body"
	if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) && t.Field != "" {
		why = fmt.Sprintf("%s must not be %s", t.Field, article(t.Value))
	}
	return &services.BrokerError{
		// Cloud Foundry's rule: a malformed 200 is a failure, but creates nothing.
		Status: r.status, Orphan: r.status != http.StatusOK,
		Description: "The service broker returned an invalid response: " + why,
	}
}

func article(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

// failure returns the error for a response that is not a success.
func (r response) failure() error {
	var errorBody struct {
		Error       any `json:"error"`
		Description any `json:"description"`
	}
	_ = json.Unmarshal(r.body, &errorBody) // the status is enough if the body is malformed
	code, _ := errorBody.Error.(string)
	description, _ := errorBody.Description.(string)
	e := &services.BrokerError{Status: r.status, Code: code, Orphan: mayLeaveOrphan(r.status)}
	switch {
	case r.status == http.StatusUnauthorized:
		e.Description = "Authentication with the service broker failed. Double-check that the username and password are correct."
	case r.status == http.StatusRequestTimeout:
		e.Description = "The request to the service broker timed out"
	case r.status == http.StatusUnprocessableEntity && code == codeAsync:
		e.Description = "This service plan requires client support for asynchronous service operations."
	case r.status == http.StatusUnprocessableEntity && code == services.CodeConcurrency:
		e.Description = "The service broker could not perform this operation in parallel with other running operations"
	case r.status == http.StatusUnprocessableEntity && code == codeApp:
		e.Description = "This service supports generation of credentials through binding an application only."
	case strings.TrimSpace(description) != "":
		e.Description = "Service broker error: " + services.Shorten(description)
	case r.status == http.StatusUnprocessableEntity && code == codeMaintenance:
		e.Description = "The service broker did not provide a reason for this conflict, please ensure the catalog is up to date and you are providing a version supported by this service plan"
	case r.status == http.StatusConflict:
		e.Description = "Resource conflict"
	default:
		e.Description = fmt.Sprintf("The service broker returned an invalid response. Status Code: %s, Body: %s", r.text, quote(r.body))
	}
	return e
}

// mayLeaveOrphan reports whether a broker that returned this status may have created
// something. It follows the table of the specification.
func mayLeaveOrphan(status int) bool {
	return status >= 500 || status >= 200 && status < 300 || status >= 300 && status < 400
}

// quote returns the start of a malformed response.
func quote(body []byte) string {
	s := strings.ToValidUTF8(string(body), "?")
	if len(s) > maxQuotedReply {
		s = strings.ToValidUTF8(s[:maxQuotedReply], "") + "…"
	}
	return s
}

// retryAfter parses the Retry-After header: seconds or a date.
func (r response) retryAfter() time.Duration {
	h := r.header.Get("Retry-After")
	d := time.Duration(0)
	if n, err := strconv.ParseInt(h, 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(h); err == nil {
		d = time.Until(at)
	}
	return max(min(d, maxRetryAfter), 0)
}
