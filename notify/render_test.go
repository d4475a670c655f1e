package notify

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/render"
	"github.com/dewrun/dew/testkit"
)

// sample has a value that needs escaping for every placeholder.
var sample = render.Placeholders{
	From: `"f" <f@x>`, ReplyTo: "<r@x>", To: "<t@x>", Subject: "<s>", Text: "<t>", HTML: "<b>h</b>",
	HTMLComponents:  delivery.HTML{Doctype: "<!DOCTYPE html>", Head: "<title>x</title>", BodyAttributes: `class="c"`, BodyContent: "<b>h</b>"},
	KindDescription: "<k>", SourceDescription: "<sd>", UserGUID: "<u>", ClientID: "<c>", MessageID: "<m>", Space: "<sp>", SpaceGUID: "<sg>",
	Organization: "<o>", OrganizationGUID: "<og>", OrganizationRole: "<or>", UnsubscribeID: "<un>", Scope: "<sc>", Endorsement: `it's "<e>"`,
	RequestReceived: "2026-01-02T03:04:05Z", Domain: "<d>",
}

// Every placeholder is filled in by its name. In HTML, only some of them are escaped.
func TestPlaceholders(t *testing.T) {
	for _, tt := range []struct{ name, text, page string }{
		{"From", `"f" <f@x>`, `&#34;f&#34; &lt;f@x&gt;`},
		{"ReplyTo", "<r@x>", "&lt;r@x&gt;"},
		{"To", "<t@x>", "&lt;t@x&gt;"},
		{"Subject", "<s>", "&lt;s&gt;"},
		{"Text", "<t>", "&lt;t&gt;"},
		{"HTML", "<b>h</b>", "<b>h</b>"},
		{"KindDescription", "<k>", "&lt;k&gt;"},
		{"SourceDescription", "<sd>", "&lt;sd&gt;"},
		{"UserGUID", "<u>", "<u>"},
		{"ClientID", "<c>", "&lt;c&gt;"},
		{"MessageID", "<m>", "&lt;m&gt;"},
		{"Space", "<sp>", "&lt;sp&gt;"},
		{"SpaceGUID", "<sg>", "<sg>"},
		{"Organization", "<o>", "&lt;o&gt;"},
		{"OrganizationGUID", "<og>", "<og>"},
		{"OrganizationRole", "<or>", "<or>"},
		{"UnsubscribeID", "<un>", "<un>"},
		{"Scope", "<sc>", "<sc>"},
		{"Endorsement", `it's "<e>"`, "it&#39;s &#34;&lt;e&gt;&#34;"},
		{"RequestReceived", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"},
		{"Domain", "<d>", "<d>"},
		{"HTMLComponents.Head", "<title>x</title>", "<title>x</title>"},
		{"HTMLComponents.Doctype", "<!DOCTYPE html>", "<!DOCTYPE html>"},
		{"HTMLComponents.BodyAttributes", `class="c"`, `class="c"`},
		{"HTMLComponents.BodyContent", "<b>h</b>", "<b>h</b>"},
	} {
		var m delivery.Mail
		source := "{{." + tt.name + "}}"
		if err := renderMail(&m, Template{Subject: source, Text: source, HTML: source}, sample); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		page := "<!DOCTYPE html>\n<head><title>x</title></head>\n<html>\n\t<body class=\"c\">\n\t\t" + tt.page + "\n\t</body>\n</html>"
		if m.Subject != tt.text || m.Text != tt.text || m.HTML != page {
			t.Errorf("%s: subject %q, text %q, html %q; want %q, page with %q", tt.name, m.Subject, m.Text, m.HTML, tt.text, tt.page)
		}
	}
}

// The texts of senders are not parsed as templates. Only the parts that they wrote are
// rendered.
func TestRender(t *testing.T) {
	p := render.Placeholders{Subject: "{{.Text}}", Text: "{{.HTML}} {{"}
	var m delivery.Mail
	if err := renderMail(&m, Template{Subject: "a\r\nBcc: x@y\n{{.Subject}}", Text: "{{.Text}}\n\n", HTML: "{{.HTML}}"}, p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, delivery.Mail{Subject: "a Bcc: x@y {{.Text}}", Text: "{{.HTML}} {{\n"}); diff != "" {
		t.Error(diff)
	}
	p = render.Placeholders{HTML: "<p>x", HTMLComponents: delivery.HTML{BodyContent: "<p>x"}}
	if err := renderMail(&m, builtIn, p); err != nil {
		t.Fatal(err)
	}
	if m.Text != "\nx" || m.HTML != "\n<head></head>\n<html>\n\t<body >\n\t\t<p></p><p>x\n\t</body>\n</html>" {
		t.Errorf("text %q, html %q", m.Text, m.HTML)
	}
	// A template without a text part: the text is that of the HTML part.
	if err := renderMail(&m, Template{Subject: "s", HTML: "<h1>Shop{{.Text}}</h1>{{.HTML}}"}, p); err != nil {
		t.Fatal(err)
	}
	if m.Text != "Shop\n====\n\nx" || !strings.Contains(m.HTML, "<h1>Shop</h1><p>x") {
		t.Errorf("text %q, html %q", m.Text, m.HTML)
	}
}

// Templates support text/template, but with limits on time and memory.
func TestFill(t *testing.T) {
	for _, tt := range []struct{ name, source, want, fails string }{
		{"condition", `{{if eq .Scope "<sc>"}}yes{{else}}no{{end}}`, "yes", ""},
		{"loop", `{{range 3}}x{{else}}y{{end}}`, "xxx", ""},
		{"with", `{{with .HTMLComponents}}{{.Head}}{{end}}`, "<title>x</title>", ""},
		{"functions", `{{printf "%5.1f|%s" 2.0 .Scope}} {{html .Scope}} {{len .Text}} {{print "a" 1}} {{urlquery "a b"}} {{js "'"}}{{println}}`, "  2.0|<sc> &lt;sc&gt; 3 a1 a+b \\'", ""},
		{"define", `{{define "x"}}[{{.}}]{{end}}{{template "x" .Text}}`, "[<t>]", ""},
		{"nested define in a loop", `{{define "x"}}{{range 2}}{{.}}{{end}}{{end}}{{range 2}}{{template "x"}}{{end}}`, "0101", ""},
		{"unknown field", `a{{.Nope}}b`, "", "line 1"},
		{"endless loop", `{{range 1000000000}}{{end}}`, "", "more than 1000 loop iterations"},
		{"loops in loops", `{{range 9999}}{{range 9999}}{{range 9999}}{{end}}{{end}}{{end}}`, "", "more than 1000 loop iterations"},
		{"loop in a condition", `{{if true}}{{with 1}}{{range 1000000000}}{{end}}{{end}}{{end}}`, "", "more than 1000 loop iterations"},
		{"loop in an else", `{{if false}}{{else}}{{range 0}}{{else}}{{range 1000000000}}{{end}}{{end}}{{end}}`, "", "more than 1000 loop iterations"},
		{"recursion", `{{define "x"}}{{template "x"}}{{template "x"}}{{end}}{{template "x"}}`, "", "more than 1000 loop iterations"},
		{"doubling", `{{define "x"}}{{end}}{{$x := "0123456789abcdef"}}` + strings.Repeat(`{{$x = print $x $x}}`, 40), "", "functions produce more than"},
		{"escaping again and again", `{{$x := "<<<<<<<<<<<<<<<<"}}` + strings.Repeat(`{{$x = html $x $x}}`, 40), "", "functions produce more than"},
		{"width", `{{printf "%1000000d" 1}}`, "", "has more than 3 digits"},
		{"width elsewhere", `{{printf "%*d" 1000000 1}}`, "", "has more than 3 digits"},
		{"precision", `{{printf "%.99999f" 1.0}}`, "", "has more than 3 digits"},
		{"many verbs", `{{printf "` + strings.Repeat("%999d", 5000) + `"}}`, "", "functions produce more than"},
		{"one value many times", `{{printf "` + strings.Repeat("%[1]s", 5000) + `" .Text}}`, "", "functions produce more than"},
		{"much output", `{{range 900}}` + strings.Repeat("x", 5000) + `{{end}}`, "", "the output has more than 4194304 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := render.Fill("text", tt.source, sample)
			if tt.fails == "" && (err != nil || got != tt.want) {
				t.Errorf("fill = %q, %v; want %q", got, err, tt.want)
			}
			if tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("fill = %.50q, %v; want an error with %q", got, err, tt.fails)
			}
		})
	}
}

// The HTML of a sender is split into the parts that templates can use.
func TestSplitHTML(t *testing.T) {
	for _, tt := range []struct {
		name, page string
		want       delivery.HTML
	}{
		{"nothing", " \n", delivery.HTML{}},
		{"piece", "<p>hi", delivery.HTML{BodyContent: "<p>hi</p>"}},
		{"text", "hi & bye", delivery.HTML{BodyContent: "hi &amp; bye"}},
		{"head only", "<head><title>x</title></head>", delivery.HTML{Head: "<title>x</title>"}},
		{"blank body", "<body> \n</body>", delivery.HTML{}},
		{
			"page", `<!DOCTYPE html PUBLIC "x"><html><head><style>a{}</style></head><body class="c" onload='x("y")'><h1>hi</h1></body></html>`,
			delivery.HTML{Doctype: `<!DOCTYPE html PUBLIC "x">`, Head: "<style>a{}</style>", BodyAttributes: `class="c" onload="x(&#34;y&#34;)"`, BodyContent: "<h1>hi</h1>"},
		},
		{"small doctype", "<!doctype html><p>x</p>", delivery.HTML{BodyContent: "<p>x</p>"}},
		{"open doctype", "x<!DOCTYPE", delivery.HTML{BodyContent: "x"}},
		{"script stays inside", "<body><script>alert(1)</script></body>", delivery.HTML{BodyContent: "<script>alert(1)</script>"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := render.SplitHTML(tt.page)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := render.SplitHTML(strings.Repeat("<div>", 10_000)); err == nil {
		t.Error("a page that is too deep was let in")
	}
}

// The id can be decrypted with the key.
func TestUnsubscribeID(t *testing.T) {
	if got := unsubscribeID("", "u", "c", "k"); got != "" {
		t.Errorf("without a key: %q", got)
	}
	raw := testkit.Must(base64.URLEncoding.DecodeString(unsubscribeID("key", "u", "c", "k")))(t)
	sum := md5.Sum([]byte("key"))
	block := testkit.Must(aes.NewCipher(sum[:]))(t)
	plain := make([]byte, len(raw)-aes.BlockSize)
	cipher.NewCFBDecrypter(block, raw[:aes.BlockSize]).XORKeyStream(plain, raw[aes.BlockSize:]) //nolint:staticcheck // the form is given
	if got := string(testkit.Must(base64.StdEncoding.DecodeString(string(plain)))(t)); got != "u|c|k" {
		t.Errorf("decrypted = %q", got)
	}
}

// The kind's template has priority over the client's, and that over the default one. A
// deleted or failing template is replaced by the default one.
func TestCompose(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	token := w.sender()
	m := delivery.Message{ID: "m", User: "u", Email: "u@example.com"}
	n := delivery.Notice{
		Version: delivery.V1, Client: "sender", Kind: "news", Subject: "S", Text: "T", Space: delivery.Place{Name: "dev"}, Org: delivery.Place{Name: "local"},
		Endorsement: EndorseSpace, ReplyTo: "r@example.com", Received: time.Unix(1, 0),
	}
	text := func() string {
		t.Helper()
		return testkit.Must(w.s.Compose(t.Context(), m, n))(t).Text
	}
	mail := testkit.Must(w.s.Compose(t.Context(), m, n))(t)
	mail.Sent = time.Time{}
	if !strings.HasPrefix(mail.Unsubscribe, serviceURL+"/unsubscribe/") {
		t.Errorf("link = %q", mail.Unsubscribe)
	}
	mail.Unsubscribe = ""
	want := delivery.Mail{
		ID: "m", From: "no-reply@dew.localhost", To: "u@example.com", ReplyTo: "r@example.com", Subject: "CF Notification: S", Client: "sender",
		Text: "You received this message because you belong to the \"dev\" space in the \"local\" organization.\nT",
		Kind: "news", User: "u", Received: time.Unix(1, 0),
	}
	if diff := cmp.Diff(mail, want); diff != "" {
		t.Error(diff)
	}
	assign := func(path, source string) string {
		t.Helper()
		id := w.do(token, "POST", "/templates", `{"name":"n","html":"h","text":"`+source+`"}`).id(t, "template-id")
		w.do(token, "PUT", path, `{"template":"`+id+`"}`).want(t, path, 204, "")
		return id
	}
	assign("/clients/sender/template", "client {{.Text}}")
	if got := text(); got != "client T" {
		t.Errorf("with a client's template: %q", got)
	}
	assign("/clients/sender/notifications/news/template", "kind {{.KindDescription}} {{.SourceDescription}}")
	if got := text(); got != "kind news sender" {
		t.Errorf("with a kind's template: %q", got)
	}
	// A template that an older dewd accepted.
	testkit.Must(w.s.buckets.templates.Update(assign("/clients/sender/notifications/news/template", "x"), func(t *Template) error {
		t.Text = "{{.Nope}}"
		return nil
	}))(t)
	if got := text(); !strings.HasSuffix(got, "\nT") || !strings.Contains(w.logged.String(), "cannot render a template") {
		t.Errorf("with a template that fails: %q, log %s", got, w.logged)
	}
	n.Template = "gone"
	if got := text(); !strings.HasSuffix(got, "\nT") {
		t.Errorf("with a template that is gone: %q", got)
	}
	for _, address := range []string{"", "nobody"} {
		m.Email = address
		if _, err := w.s.Compose(t.Context(), m, n); !errors.Is(err, delivery.ErrUndeliverable) {
			t.Errorf("address %q: %v", address, err)
		}
	}
}

// Any template is refused, or rendered within its limits.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{{.Text}}", "{{range 5}}{{.}}{{end}}", "{{", `{{printf "%[1]s" .}}`, `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`, "{{.Nope}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl := Template{Subject: "s", Text: source, HTML: source}
		if len(source) > maxPart || tmpl.check() != nil {
			return
		}
		var m delivery.Mail
		if err := renderMail(&m, tmpl, sample); err == nil && (len(m.Text) > render.MaxOutput || len(m.HTML) > render.MaxOutput+1000) {
			t.Errorf("%d and %d bytes were made", len(m.Text), len(m.HTML))
		}
	})
}

// The parts of any page can be joined again.
func FuzzSplitHTML(f *testing.F) {
	for _, seed := range []string{"", "<p>hi", `<!DOCTYPE html><head></head><body a="b">x`, "<frameset>", "<svg><body>", "<template><p></template>", "<plaintext>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, page string) {
		parts, err := render.SplitHTML(page)
		if err != nil {
			return
		}
		if _, err := render.SplitHTML(render.Document(parts, parts.BodyContent)); err != nil {
			t.Errorf("the parts of %q make no page: %v", page, err)
		}
	})
}

// The output of functions on a whole page counts against the limit, and so does every
// iteration of a loop.
func TestTemplateOfParts(t *testing.T) {
	p := render.Placeholders{HTMLComponents: delivery.HTML{BodyContent: strings.Repeat("x", 1<<20)}}
	for _, source := range []string{
		"{{$x := print" + strings.Repeat(" .HTMLComponents", 100) + "}}",
		`{{$x := printf "` + strings.Repeat("%[1]v", 100) + `" .HTMLComponents}}`,
		"{{$x := print" + strings.Repeat(" .", 100) + "}}",
		"{{range 900}}{{/*" + strings.Repeat("x", 200_000) + "*/}}{{end}}",
	} {
		if _, err := render.Fill("text", source, p); err == nil || !strings.Contains(err.Error(), "too expensive to render") {
			t.Errorf("%.40s: %v, want it refused", source, err)
		}
	}
}
