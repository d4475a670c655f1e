package unsubscribe

import (
	"bytes"
	_ "embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
)

// State is a subscription as the page shows it.
type State struct {
	Source     string // name of the client
	Kind       string // description of the kind
	Subscribed bool
	Silent     bool // the user wants only critical notifications
}

// Errors of Subscriptions.
var (
	// ErrNotFound means that the kind was deleted.
	ErrNotFound = errors.New("the notification does not exist")
	// ErrCritical means that users cannot unsubscribe from the kind.
	ErrCritical = errors.New("the notification is critical")
)

// Subscriptions stores which users unsubscribed. notify.Server implements it.
type Subscriptions interface {
	// Subscription returns the current state, ErrNotFound or ErrCritical.
	Subscription(s Subscription) (State, error)
	// SetSubscribed subscribes or unsubscribes the user.
	SetSubscribed(s Subscription, subscribed bool) error
}

// Page shows a subscription to whoever has its link, and changes it.
type Page struct {
	links *Links
	subs  Subscriptions
	log   *slog.Logger
	mux   *http.ServeMux
}

const (
	policy  = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	maxForm = 16 << 10 // bytes of a form
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS []byte

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// view is the content of the page.
type view struct {
	Path    string // of the page
	Token   string // empty: there is only a message
	Message string
	Done    bool // the state was just changed
	State
}

// NewPage creates the page of the links.
func NewPage(l *Links, subs Subscriptions, log *slog.Logger) *Page {
	p := &Page{links: l, subs: subs, log: log, mux: http.NewServeMux()}
	p.mux.HandleFunc("GET /unsubscribe/style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(pageCSS) // the browser may have disconnected
	})
	p.mux.HandleFunc("GET /unsubscribe/{token}", p.show)
	p.mux.HandleFunc("POST /unsubscribe/{token}", p.change)
	p.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		p.write(w, http.StatusNotFound, view{Message: "This page does not exist. Use the link in your mail."})
	})
	return p
}

// IsPage reports whether the page answers a request.
func IsPage(path string) bool {
	return path == "/unsubscribe" || strings.HasPrefix(path, "/unsubscribe/")
}

// ServeHTTP implements http.Handler. Paths begin with /unsubscribe/.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the form with the origin null
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	p.mux.ServeHTTP(w, r)
}

// show handles GET: it changes nothing, because programs that check links open them.
func (p *Page) show(w http.ResponseWriter, r *http.Request) {
	s, state, ok := p.read(w, r)
	if ok {
		p.write(w, http.StatusOK, view{Token: p.links.token(s), State: state})
	}
}

// change handles POST of the form, and of mail programs with one click (RFC 8058). Both
// can be repeated.
func (p *Page) change(w http.ResponseWriter, r *http.Request) {
	s, state, ok := p.read(w, r)
	if !ok {
		return
	}
	if err := parseForm(r); err != nil {
		p.write(w, http.StatusBadRequest, view{Message: "The request could not be read. Open the link in your mail again."})
		return
	}
	switch {
	case r.PostForm.Get("List-Unsubscribe") == "One-Click", r.PostForm.Get("action") == "unsubscribe":
		state.Subscribed = false
	case r.PostForm.Get("action") == "subscribe":
		state.Subscribed = true
	default:
		p.write(w, http.StatusBadRequest, view{Message: "The request does not say what to do. Open the link in your mail again."})
		return
	}
	if err := p.subs.SetSubscribed(s, state.Subscribed); err != nil {
		p.fail(w, err)
		return
	}
	p.write(w, http.StatusOK, view{Token: p.links.token(s), State: state, Done: true})
}

// parseForm parses the body in either encoding of a form.
func parseForm(r *http.Request) error {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		return r.ParseMultipartForm(maxForm)
	}
	return r.ParseForm()
}

// read returns the subscription of the link and its state. If that is not possible, it
// writes the response.
func (p *Page) read(w http.ResponseWriter, r *http.Request) (s Subscription, state State, ok bool) {
	s, err := p.links.parse(r.PathValue("token"))
	if err != nil {
		p.write(w, http.StatusNotFound, view{Message: "This link is not valid. Copy the whole link from your mail."})
		return s, state, false
	}
	if state, err = p.subs.Subscription(s); err != nil {
		p.fail(w, err)
		return s, state, false
	}
	return s, state, true
}

func (p *Page) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		p.write(w, http.StatusNotFound, view{Message: "This notification does not exist any more. You get no more mails about it."})
	case errors.Is(err, ErrCritical):
		p.write(w, http.StatusForbidden, view{Message: "This notification is critical. You cannot unsubscribe from it."})
	default:
		p.log.Error("cannot change a subscription", "err", err)
		p.write(w, http.StatusInternalServerError, view{Message: "Your subscription could not be read or changed. Try again later."})
	}
}

func (p *Page) write(w http.ResponseWriter, status int, v view) {
	v.Path = p.links.path
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		p.log.Error("cannot render the page to unsubscribe", "err", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser may have disconnected
}
