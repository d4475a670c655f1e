package sso

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"

	"github.com/dewrun/dew/ticket"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.ParseFS(assets, "assets/page.html"))

// page is the content of a page.
type page struct {
	Title, Text string
	User        string // name of the logged-in user
	Next        string // URL that the browser opens at once
	Form        *formPage
}

// formPage is the login form.
type formPage struct {
	Client, Host        string // which dashboard wants to know the user
	Name, Problem       string
	Request             string
	CSRFField, CSRFText string
}

// form is a login form to show.
type form struct {
	request       string // query of the request for a code
	req           *request
	name, problem string
	status        int
}

// harden sets the headers of every page.
func harden(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the form with the origin null
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'")
}

// form shows the login form with a new token, or the one that other tabs have.
func (s *Server) form(w http.ResponseWriter, r *http.Request, f form) {
	p := &formPage{Name: f.name, Problem: f.problem, Request: f.request, CSRFField: csrfField}
	if f.req != nil {
		p.Client, p.Host = f.req.client.Name, f.req.redirect.Host
	}
	if c, err := r.Cookie(s.cookieName(r, csrfCookie)); err == nil && len(c.Value) == len(ticket.Secret()) {
		p.CSRFText = c.Value
	} else {
		p.CSRFText = ticket.Secret()
		s.setCookie(w, r, csrfCookie, p.CSRFText)
	}
	harden(w)
	if f.status == 0 {
		f.status = http.StatusOK
	}
	s.page(w, f.status, page{Title: "Log in", Form: p})
}

// message shows a sentence.
func (s *Server) message(w http.ResponseWriter, status int, title, text string) {
	harden(w)
	s.page(w, status, page{Title: title, Text: text})
}

func (s *Server) page(w http.ResponseWriter, status int, p page) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, "page.html", p); err != nil {
		s.log.Error("cannot fill in a page", "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		s.log.Debug("cannot send a page", "err", err)
	}
}

// style serves the style sheet of the pages.
func style(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, assets, "assets/login.css")
}
