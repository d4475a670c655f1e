package inbox

import (
	"bytes"
	_ "embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/ticket"
)

// Page shows the inbox in a browser, to users who opened a link to it.
//
//	Link ─▶ GET /inbox?code=… ─▶ cookie ─▶ GET /inbox, /inbox/{id}, /inbox/{id}/html in a frame
//
// A code is valid once and for a few minutes. It is exchanged for a cookie, which is
// valid until the daemon exits. The HTML of senders is shown in a frame with a separate
// origin, without scripts, forms or external resources.
type Page struct {
	inbox  *Inbox
	base   string // URL of the page
	path   string // for cookies
	secure bool
	log    *slog.Logger

	codes    *ticket.Store[struct{}]
	sessions *ticket.Store[struct{}]
}

const (
	codeLifetime    = 5 * time.Minute
	sessionLifetime = 12 * time.Hour
	maxTickets      = 100 // of each kind; the oldest is dropped
	pageMails       = 200
	cookieName      = "dew_inbox"
)

// Content security policies of the responses.
const (
	pagePolicy = "default-src 'none'; style-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	// The frame's document has no origin, runs no scripts and loads nothing. Only
	// inline styles apply.
	framePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
}).Parse(pageHTML))

// NewPage creates the page. publicURL is the URL of the notification service.
func NewPage(inbox *Inbox, publicURL string, log *slog.Logger) (*Page, error) {
	u, err := url.Parse(publicURL)
	if err != nil {
		return nil, err
	}
	u = u.JoinPath("inbox")
	return &Page{
		inbox: inbox, base: u.String(), path: u.Path, secure: u.Scheme == "https", log: log,
		codes: ticket.New[struct{}](maxTickets), sessions: ticket.New[struct{}](maxTickets),
	}, nil
}

// Link returns the URL of the page with a code that is valid once.
func (p *Page) Link() (string, error) {
	return p.base + "?code=" + url.QueryEscape(p.codes.Issue("", struct{}{}, codeLifetime)), nil
}

// redeem exchanges a code for a session. It returns false if the code is not valid.
func (p *Page) redeem(code string) (session string, ok bool) {
	if _, ok := p.codes.Take(code); !ok {
		return "", false
	}
	return p.sessions.Issue("", struct{}{}, sessionLifetime), true
}

func (p *Page) hasSession(r *http.Request) bool {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	_, ok := p.sessions.Get(c.Value)
	return ok
}

// Handler returns the handler of /inbox and the paths below it.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /inbox", p.list)
	mux.HandleFunc("GET /inbox/style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(pageCSS)) // the browser may have disconnected
	})
	mux.HandleFunc("GET /inbox/{id}", p.show)
	mux.HandleFunc("GET /inbox/{id}/html", p.frame)
	mux.HandleFunc("GET /inbox/{id}/raw", p.raw)
	// The cookie has SameSite=Strict, so that other sites cannot delete mails.
	mux.HandleFunc("POST /inbox/{id}/delete", p.delete)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "SAMEORIGIN")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if code := r.FormValue("code"); code != "" && r.URL.Path == "/inbox" && r.Method == http.MethodGet {
			p.startSession(w, r, code)
			return
		}
		if !p.hasSession(r) {
			p.writeMessage(w, http.StatusUnauthorized, "You need a link to open this page. To get a link, run: dew inbox --open")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// startSession starts a session for a browser, and removes the code from its URL.
func (p *Page) startSession(w http.ResponseWriter, r *http.Request, code string) {
	session, ok := p.redeem(code)
	if !ok {
		p.writeMessage(w, http.StatusUnauthorized, "This link was already used or has expired. To get a new link, run: dew inbox --open")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: session, Path: p.path, HttpOnly: true, Secure: p.secure, SameSite: http.SameSiteStrictMode,
		MaxAge: int(sessionLifetime.Seconds()),
	})
	http.Redirect(w, r, p.path, http.StatusSeeOther)
}

// pageData is the data of the template.
type pageData struct {
	Path    string
	Message string // if set, shown instead of everything else
	Search  string // the text to search for
	Total   int    // number of mails that match
	Mails   []StoredMail
	Mail    *StoredMail
	Newer   string // id of the next mail; empty: none
	Before  string // id of the previous mail; empty: none
	Older   int
}

func (p *Page) list(w http.ResponseWriter, r *http.Request) {
	search := strings.TrimSpace(r.URL.Query().Get("q"))
	all, err := p.inbox.List(Filter{Text: search}, 0)
	if err != nil {
		p.fail(w, err)
		return
	}
	shown := all[:min(pageMails, len(all))]
	p.write(w, http.StatusOK, pageData{Search: search, Total: len(all), Mails: shown, Older: len(all) - len(shown)})
}

func (p *Page) show(w http.ResponseWriter, r *http.Request) {
	k, err := p.inbox.Get(r.PathValue("id"))
	if err != nil {
		p.fail(w, err)
		return
	}
	d := pageData{Mail: &k}
	all, err := p.inbox.List(Filter{}, 0)
	if err != nil {
		p.fail(w, err)
		return
	}
	if at := slices.IndexFunc(all, func(o StoredMail) bool { return o.Seq == k.Seq }); at >= 0 {
		if at > 0 {
			d.Newer = all[at-1].ID
		}
		if at+1 < len(all) {
			d.Before = all[at+1].ID
		}
	}
	p.write(w, http.StatusOK, d)
}

// raw serves a mail as a mail server would get it.
func (p *Page) raw(w http.ResponseWriter, r *http.Request) {
	k, err := p.inbox.Get(r.PathValue("id"))
	var source bytes.Buffer
	if err == nil {
		_, err = k.WriteTo(&source)
	}
	if err != nil {
		p.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(source.Bytes()) // the browser may have disconnected
}

// delete deletes a mail and shows the list.
func (p *Page) delete(w http.ResponseWriter, r *http.Request) {
	if err := p.inbox.Delete(r.PathValue("id")); err != nil {
		p.fail(w, err)
		return
	}
	http.Redirect(w, r, p.path, http.StatusSeeOther)
}

// frame serves the HTML of a mail unchanged, under a policy that blocks all activity.
func (p *Page) frame(w http.ResponseWriter, r *http.Request) {
	k, err := p.inbox.Get(r.PathValue("id"))
	if err != nil {
		p.fail(w, err)
		return
	}
	w.Header().Set("Content-Security-Policy", framePolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(k.HTML)))
	_, _ = w.Write([]byte(k.HTML)) // the browser may have disconnected
}

func (p *Page) fail(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrNoMail) {
		p.writeMessage(w, http.StatusNotFound, "This mail does not exist or was deleted.")
		return
	}
	p.log.Error("cannot show the inbox", "err", err)
	p.writeMessage(w, http.StatusInternalServerError, "The inbox cannot be read. See the log of dewd for the cause.")
}

func (p *Page) writeMessage(w http.ResponseWriter, status int, message string) {
	p.write(w, status, pageData{Message: message})
}

func (p *Page) write(w http.ResponseWriter, status int, d pageData) {
	d.Path = p.path
	var b strings.Builder
	if err := pageTemplate.Execute(&b, d); err != nil {
		p.log.Error("cannot render the inbox page", "err", err)
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(b.String())) // the browser may have disconnected
}
