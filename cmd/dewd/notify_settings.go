package main

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/notify/directory"
	"github.com/dewrun/dew/notify/smtp"
)

// notifyConfig holds the flags and variables of the standalone notification service.
type notifyConfig struct {
	config // the flags that dewd also has

	API, UAA         string
	ClientID, Secret string
	EncryptionKey    string
	CORSOrigin       string
	DefaultScopes    []string // nil: those of Cloud Foundry
	KeysEvery        time.Duration
	Unverified       bool // certificates of API and UAA are not verified
	TestMode         bool // mails are not sent

	smtpHost, smtpPort string
	idle               []string // names of given settings that have no effect here
}

func newNotifyConfig() *notifyConfig {
	c := defaultConfig()
	c.Root, c.Listen = "/var/lib/dew-notify", "127.0.0.1:3000"
	return &notifyConfig{config: c}
}

func (a *notifyConfig) flags() []cli.Flag {
	return append([]cli.Flag{
		text(&a.Root, "root", "Root `folder` with the store notify.db"),
		text(&a.Listen, "listen", "Listen `address` of the service (or PORT, at all addresses)"),
		text(&a.PublicURL, "public-url", "Public `URL` of the service (default: http:// and --listen)"),
		text(&a.Domain, "domain", "Value of {{.Domain}} in templates, a `domain` (or DOMAIN)"),
		text(&a.LogFormat, "log-format", "Format of the service's own log on stderr, `text|json`"),
		value(&level{&a.LogLevel}, "log-level", "Lowest level of the service's own log, `debug|info|warn|error`"),
	}, a.Mailing.flags()...)
}

// setting is an environment variable.
type setting struct {
	name      string
	flags     []string // if one of them is given, the variable is not read
	required  bool
	otherwise string // default value
	usage     string
	set       func(v string) error
}

// settings returns all settings, in the order of the help.
func (a *notifyConfig) settings() []setting {
	m := &a.Mailing
	return []setting{
		{name: "CC_HOST", required: true, usage: "URL of the Cloud Controller API", set: to(&a.API)},
		{name: "UAA_HOST", required: true, usage: "URL of the authorization server", set: to(&a.UAA)},
		{name: "UAA_CLIENT_ID", required: true, usage: "UAA client of the service, with the authorities cloud_controller.admin and scim.read", set: to(&a.ClientID)},
		{name: "UAA_CLIENT_SECRET", required: true, usage: "secret of the UAA client", set: to(&a.Secret)},
		{name: "UAA_KEY_REFRESH_INTREVAL", otherwise: "60000", usage: "milliseconds between two requests for the token keys (INTREVAL is spelled as in the original service)", set: a.setKeysEvery},
		{name: "VERIFY_SSL", otherwise: "true", usage: "false: do not verify the certificates of CC_HOST, UAA_HOST and the mail server", set: toBool(func(v bool) { a.Unverified = !v })},
		{name: "DOMAIN", flags: []string{"domain"}, required: true, usage: "value of {{.Domain}} in templates", set: to(&a.Domain)},
		{name: "ENCRYPTION_KEY", required: true, usage: "key that encrypts {{.UnsubscribeID}}", set: to(&a.EncryptionKey)},
		{name: "SENDER", flags: []string{"mail-from"}, required: true, usage: "sender address of mails", set: a.setSender},
		{name: "TEST_MODE", otherwise: "false", usage: "true: send no mail, but report mails as delivered", set: toBool(func(v bool) { a.TestMode = v })},
		{name: "SMTP_HOST", flags: []string{"smtp"}, required: true, usage: "host of the mail server; no SMTP_ variable is required in test mode", set: to(&a.smtpHost)},
		{name: "SMTP_PORT", flags: []string{"smtp"}, required: true, usage: "port of the mail server", set: a.setSMTPPort},
		{name: "SMTP_AUTH_MECHANISM", flags: []string{"smtp", "smtp-auth"}, required: true, usage: "authentication at the mail server: none, plain or cram-md5; mails are sent without it if the server does not offer it, or if the password would be sent unencrypted", set: a.setSMTPAuth},
		{name: "SMTP_TLS", flags: []string{"smtp", "smtp-tls"}, otherwise: "true", usage: "true: use STARTTLS if the mail server offers it (to require it, use --smtp-tls starttls); false: use no encryption", set: toBool(a.setSMTPTLS)},
		{name: "SMTP_USER", flags: []string{"smtp-user"}, usage: "user name at the mail server", set: to(&m.User)},
		{name: "SMTP_PASS", flags: []string{"smtp-password-file"}, usage: "password at the mail server", set: to(&m.Password)},
		{name: "SMTP_CRAMMD5_SECRET", flags: []string{"smtp-password-file"}, usage: "secret for cram-md5", set: a.setCRAMSecret},
		{name: "PORT", flags: []string{"listen"}, usage: "port of the service, at all addresses of the machine", set: a.setPort},
		{name: "CORS_ORIGIN", otherwise: "*", usage: "origin of the web pages that can read preferences", set: to(&a.CORSOrigin)},
		{name: "DEFAULT_UAA_SCOPES", usage: "scopes that every user has, separated by commas: dewd refuses notifications to them", set: a.setScopes},
	}
}

// idleSettings are settings of the original service without effect here: state is in
// --root, and nothing is polled.
var idleSettings = []string{
	"DATABASE_URL", "DATABASE_CA_CERT_FILE", "DATABASE_COMMON_NAME", "DATABASE_ENABLE_IDENTITY_VERIFICATION", "DB_LOGGING_ENABLED", "DB_MAX_OPEN_CONNS",
	"GOBBLE_WAIT_MAX_DURATION", "ROOT_PATH", "SMTP_LOGGING_ENABLED",
}

func to(v *string) func(string) error {
	return func(s string) error { *v = s; return nil }
}

func toBool(set func(bool)) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is not true or false", s)
		}
		set(v)
		return nil
	}
}

func (a *notifyConfig) setKeysEvery(s string) error {
	const least, most = 1000, 24 * 60 * 60 * 1000
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return fmt.Errorf("%q is not a number of milliseconds from %d to %d", s, least, most)
	}
	a.KeysEvery = time.Duration(n) * time.Millisecond
	return nil
}

func (a *notifyConfig) setSender(s string) error {
	if _, err := mail.ParseAddress(s); err != nil {
		return fmt.Errorf("%q is not a valid mail address", s)
	}
	a.Mailing.From = s
	return nil
}

func port(s string) error {
	if n, err := strconv.ParseUint(s, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return nil
}

func (a *notifyConfig) setPort(s string) error {
	a.Listen = net.JoinHostPort("0.0.0.0", s)
	return port(s)
}

func (a *notifyConfig) setSMTPPort(s string) error {
	a.smtpPort = s
	return port(s)
}

func (a *notifyConfig) setSMTPAuth(s string) error {
	if !oneOf(s, string(smtp.AuthNone), string(smtp.AuthPlain), string(smtp.AuthCRAMMD5)) {
		return fmt.Errorf("%q is not one of none, plain, cram-md5", s)
	}
	a.Mailing.Auth = s
	return nil
}

func (a *notifyConfig) setSMTPTLS(on bool) {
	a.Mailing.TLS = string(smtp.TLSNone)
	if on {
		a.Mailing.TLS = string(smtp.TLSIfOffered)
	}
}

// setCRAMSecret is called after SMTP_PASS, because one file can contain both.
func (a *notifyConfig) setCRAMSecret(s string) error {
	if a.Mailing.Auth == string(smtp.AuthCRAMMD5) {
		a.Mailing.Password = s
	}
	return nil
}

func (a *notifyConfig) setScopes(s string) error {
	a.DefaultScopes = []string{}
	for scope := range strings.SplitSeq(s, ",") {
		if scope = strings.TrimSpace(scope); scope != "" {
			a.DefaultScopes = append(a.DefaultScopes, scope)
		}
	}
	return nil
}

// read fills in the values of the environment. Flags override them.
func (a *notifyConfig) read(c *cli.Context) error {
	if err := a.readFrom(os.Getenv, c.IsSet); err != nil {
		return &failure{status: statusUsage, err: fmt.Errorf("%w (dewd notify --help)", err)}
	}
	return nil
}

func (a *notifyConfig) readFrom(getenv func(string) string, given func(flag string) bool) error {
	var errs []error
	for _, s := range a.settings() {
		if slices.ContainsFunc(s.flags, given) {
			continue
		}
		v := getenv(s.name)
		if v == "" {
			v = s.otherwise
		}
		switch {
		case v != "":
			if err := s.set(v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			}
		case s.required && !(a.TestMode && strings.HasPrefix(s.name, "SMTP_")):
			errs = append(errs, fmt.Errorf("%s is missing: set it in the environment%s", s.name, orFlag(s.flags)))
		}
	}
	for _, name := range idleSettings {
		if getenv(name) != "" {
			a.idle = append(a.idle, name)
		}
	}
	if a.smtpHost != "" && a.smtpPort != "" {
		a.Mailing.SMTP, a.Mailing.Original = net.JoinHostPort(a.smtpHost, a.smtpPort), true
		a.Mailing.Unverified = a.Unverified
	}
	if len(errs) == 0 {
		errs = a.checkRemote()
	}
	return errors.Join(errs...)
}

// checkRemote reports errors early with the name of the variable, which opening would
// not have.
func (a *notifyConfig) checkRemote() (errs []error) {
	for _, s := range []struct{ name, url string }{{"CC_HOST", a.API}, {"UAA_HOST", a.UAA}} {
		_, err := directory.NewRemote(directory.RemoteConfig{API: s.url, UAA: s.url, ClientID: a.ClientID, ClientSecret: a.Secret})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not a valid URL such as https://server.example.com", s.name, s.url))
		}
	}
	return errs
}

func orFlag(flags []string) string {
	if len(flags) == 0 {
		return ""
	}
	return ", or use --" + flags[len(flags)-1]
}

// help returns the help text for the settings.
func (a *notifyConfig) help() string {
	var b strings.Builder
	b.WriteString("The service gets users and roles from a Cloud Foundry on other machines, accepts its tokens, and stores its own state under --root.\n" +
		"GET /healthz reports its health. It runs until SIGTERM or SIGINT; after the next start it sends the mails that are still in the queue.\n" +
		"These environment variables configure the service. A flag overrides its variable. With --smtp, only the --smtp flags configure the mail server.\n")
	for _, s := range a.settings() {
		fmt.Fprintf(&b, "\n   %-25s %s", s.name, s.usage)
		switch {
		case s.required:
			b.WriteString(" (required)")
		case s.otherwise != "":
			fmt.Fprintf(&b, " (default: %s)", s.otherwise)
		}
	}
	b.WriteString("\n\nThese variables of the original service have no effect: " + strings.Join(idleSettings, ", ") + ".")
	return b.String()
}
