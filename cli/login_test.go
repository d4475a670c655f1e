package cli

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/testkit"
)

// remote runs a command without --run: it uses the daemon that dew is logged in to.
func (d *fakeDaemon) remote(args ...string) result {
	d.t.Helper()
	return d.types("", args...)
}

// types is remote with a user who types text at the terminal.
func (d *fakeDaemon) types(text string, args ...string) result {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	d.t.Setenv("DEW_RUN", d.run)
	return runDewWithInput(ctx, text, args...)
}

func storedConfig(t *testing.T) command.Config {
	t.Helper()
	m, err := command.FindConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLogin(t *testing.T) {
	d := newRemoteDaemon(t).withApp(v3.AppStarted)
	url := d.listen()
	d.remote("apps").must(t, 0, "shop") // the socket needs no login
	d.remote("login", url, "-a", url).must(t, 2, "login takes one URL")
	d.remote("login", url, "-u", "admin", "-p", "wrong").must(t, 1, "cannot log in to "+url+" as admin: Bad credentials", "Check the user name")
	if c := storedConfig(t); c.API != "" {
		t.Fatalf("a login that failed is remembered: %+v", c)
	}
	d.remote("login", url, "-u", "admin", "-p", "it's").must(t, 0, "Logged in to "+url+" as admin", "org:     local", "space:   dev")
	info, err := os.Stat(filepath.Join(os.Getenv("DEW_HOME"), ".dew", "config.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	d.remote("apps").must(t, 0, "shop")
	d.remote("app", "shop").must(t, 0, "shop")
	if d.count("GET /v3/apps") == 0 || len(d.accounts.grants) != 2 {
		t.Errorf("grants are %v", d.accounts.grants)
	}
	d.remote("api").must(t, 0, url, "user:", "admin", "3.180.0")
	d.remote("api", "--json").must(t, 0, `"api": "`+url+`"`, `"user": "admin"`)
	d.remote("oauth-token").must(t, 0, "bearer e30.")
	d.remote("login", "-u", "admin", "--client-credentials", "--password-stdin").must(t, 1, "cannot read the answer")
	d.remote("logout").must(t, 0, "Logged out of "+url)
	if d.count("DELETE /uaa/oauth/token/revoke/jti-1") != 1 {
		t.Errorf("the token was not revoked: %v", d.requests)
	}
	d.remote("logout").must(t, 0, "Not logged in")
	d.remote("api").must(t, 0, filepath.Join(d.run, "dew.sock"), "no login is needed")
	// Without a URL, login uses the last one. It asks for the password, and again if it
	// is wrong.
	d.types("admin\nwrong\nit's\n", "login").must(t, 0, "User: ", "Password: ", "Try again", "Logged in to "+url)
	d.types("a\nb\nc\nd\n", "login", "-u", "admin").must(t, 1, "cannot log in to "+url+" as admin")
}

func TestLoginSocketAddress(t *testing.T) {
	d := newRemoteDaemon(t)
	d.t.Setenv("DEW_PASSWORD", "x")
	// The daemon of this machine reports a URL on which no server listens.
	d.remote("login", "-u", "admin").must(t, 6, unusedURL, "Check that the daemon is running")
	runDew(t.Context(), "--run", t.TempDir(), "login", "-u", "x", "-p", "y").must(t, 2, "login needs the URL of a daemon")
}

func TestLoginUsage(t *testing.T) {
	d := newRemoteDaemon(t)
	url := d.listen()
	d.remote("login", "ftp://x", "-u", "u", "-p", "p").must(t, 2, "not the URL of a daemon")
	d.remote("login", url, "-p", "p").must(t, 2, "no user name given", "Pass it with -u")
	d.remote("login", url, "-u", "admin").must(t, 2, "--password-stdin, or set DEW_PASSWORD")
	d.remote("login", url, "-u", "a", "-p", "b", "--ca-cert", "/nowhere").must(t, 2, "--ca-cert")
	d.remote("auth", "admin", "it's").must(t, 2, "auth needs the URL of a daemon", "dew api http://")
	d.remote("api", url).must(t, 0, "To log in: dew login "+url)
	d.remote("apps").must(t, 1, "not logged in to "+url, "dew login "+url, "dew api --unset")
	d.remote("auth", "admin", "it's").must(t, 0, "Logged in to", "dew target -o ORG -s SPACE")
	d.remote("api", url).must(t, 0, "as admin")
	d.remote("api", "--unset", url).must(t, 2, "URL or --unset")
	d.remote("api", "--unset").must(t, 0, "over its socket")
	d.remote("--api", url, "target", "--json").must(t, 0, `"api": "`+url+`"`, `"user": "admin"`)
	d.remote("--api", url, "--run", "/elsewhere", "target").must(t, 2, "cannot be used together")
	t.Setenv("DEW_API", url)
	d.remote("target").must(t, 0, url)
	d.remote("--run", d.run+"/.", "target").must(t, 0, "dew.sock")
	if c := storedConfig(t); c.API != "" {
		t.Errorf("--api is remembered: %+v", c)
	}
}

func TestClientLogin(t *testing.T) {
	d := newRemoteDaemon(t).withApp(v3.AppStarted)
	url := d.listen()
	d.accounts.secrets["ci"] = "s3cret of ci"
	d.types("s3cret of ci\n", "login", url, "-u", "ci", "--client-credentials", "--password-stdin").must(t, 0, "as client ci")
	d.accounts.good = nil
	d.remote("apps").must(t, 1, "the session of client ci at "+url+" has expired", "dew login "+url+" -u ci --client-credentials")
	t.Setenv("DEW_USERNAME", "ci")
	t.Setenv("DEW_PASSWORD", "s3cret of ci")
	d.remote("apps").must(t, 0, "shop")
	if strings.Contains(string(configText(t)), "s3cret of ci") {
		t.Error("the secret is on the disk")
	}
}

func configText(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(os.Getenv("DEW_HOME"), ".dew", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// In scripts, three environment variables replace a login.
func TestEnvironmentLogin(t *testing.T) {
	d := newRemoteDaemon(t).withApp(v3.AppStarted)
	t.Setenv("DEW_API", d.listen())
	d.remote("apps").must(t, 1, "not logged in")
	t.Setenv("DEW_USERNAME", "admin")
	t.Setenv("DEW_PASSWORD", "it's")
	d.remote("apps").must(t, 0, "shop")
	d.remote("apps").must(t, 0, "shop")
	if n := len(d.accounts.grants); n != 1 {
		t.Errorf("it logged in %d times", n)
	}
	if text := string(configText(t)); strings.Contains(text, "it's") {
		t.Errorf("the password is on the disk:\n%s", text)
	}
	d.accounts.good, d.accounts.refresh = nil, map[string]string{}
	d.remote("apps").must(t, 0, "shop") // the daemon refuses the refresh token, but accepts the password
	if got := d.accounts.grants; !slices.Equal(got, []string{"password", "refresh_token", "password"}) {
		t.Errorf("grants are %v", got)
	}
}

// A stored session is only for the user and the password that created it, with dew
// login or with the environment.
func TestEnvironmentOfAnother(t *testing.T) {
	d := newRemoteDaemon(t).withApp(v3.AppStarted)
	url := d.listen()
	wrong := []string{"cannot log in to " + url + ": DEW_PASSWORD is not the password of admin", "unset both to use the session of dew login"}
	d.accounts.secrets["ada"] = "pa"
	d.remote("login", url, "-u", "ada", "-p", "pa").must(t, 0)
	t.Setenv("DEW_USERNAME", "admin")
	d.remote("apps").must(t, 1, "DEW_USERNAME is admin, but dew is logged in to "+url+" as ada", "dew login "+url+" -u admin")
	t.Setenv("DEW_PASSWORD", "wrong")
	d.remote("apps").must(t, 1, wrong...)
	t.Setenv("DEW_PASSWORD", "it's")
	d.remote("apps").must(t, 0, "shop")
	d.remote("api").must(t, 0, "user:", "admin")
	t.Setenv("DEW_PASSWORD", "wrong")
	d.remote("apps").must(t, 1, wrong...)
	d.remote("login", url, "-u", "ada", "-p", "pa").must(t, 0, "as ada") // flags override the environment
	t.Setenv("DEW_USERNAME", "")
	t.Setenv("DEW_PASSWORD", "")
	d.remote("api").must(t, 0, "user:", "ada")
	d.remote("apps").must(t, 0, "shop")
}

// A token that expires soon is renewed before it is used, and a refused token after the
// refusal. Each is renewed once.
func TestRenewal(t *testing.T) {
	d := newRemoteDaemon(t).withApp(v3.AppStarted)
	url := d.listen()
	d.accounts.life = 30 * time.Second
	d.remote("login", url, "-u", "admin", "-p", "it's").must(t, 0)
	first := len(d.accounts.grants)
	d.accounts.life = time.Hour
	d.remote("apps").must(t, 0, "shop")
	d.remote("apps").must(t, 0, "shop")
	if got := d.accounts.grants[first:]; len(got) != 1 || got[0] != "refresh_token" {
		t.Errorf("grants are %v", got)
	}
	first = len(d.accounts.grants)
	d.accounts.good = nil // the daemon forgot all tokens
	bits := t.TempDir()
	if err := os.WriteFile(filepath.Join(bits, "a"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.remote("push", "shop", "-p", bits).must(t, 0)
	if got := d.accounts.grants[first:]; len(got) != 1 || got[0] != "refresh_token" {
		t.Errorf("grants are %v", got)
	}
	d.accounts.good, d.accounts.refresh = nil, map[string]string{}
	d.remote("apps").must(t, 1, "the session of admin at "+url+" has expired", "dew login "+url+" -u admin")
}

// The socket needs no token, and provides one for other clients.
func TestSocketToken(t *testing.T) {
	d := newRemoteDaemon(t)
	d.listen()
	d.dew("create-user", "ada", "pw").must(t, 0, "Created user ada")
	if len(d.accounts.grants) != 0 {
		t.Errorf("grants are %v", d.accounts.grants)
	}
	d.accounts.secrets["admin"] = "" // unknown password
	d.dew("oauth-token").must(t, 0, "bearer e30.")
}

func TestTLS(t *testing.T) {
	d := newRemoteDaemon(t)
	d.accounts.locked = true
	s := httptest.NewTLSServer(d.handler())
	defer s.Close()
	d.remote("login", s.URL, "-u", "admin", "-p", "it's").must(t, 6, "certificate", "--ca-cert FILE")
	d.remote("login", strings.TrimPrefix(d.listen(), "http://"), "-u", "admin", "-p", "it's").must(t, 6, "Use a URL that starts with http://")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d.remote("login", s.URL, "-u", "a", "-p", "b", "--ca-cert", ca, "--skip-ssl-validation").must(t, 2, "cannot be used together")
	d.remote("login", s.URL, "-u", "admin", "-p", "it's", "--ca-cert", ca).must(t, 0, "Logged in")
	d.remote("orgs").must(t, 0, "local") // the choice is stored
	d.remote("logout").must(t, 0)
	d.remote("login", s.URL, "-u", "admin", "-p", "it's", "--skip-ssl-validation").must(t, 0, "Logged in")
	d.remote("orgs").must(t, 0, "local")
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.remote("login", s.URL, "-u", "a", "-p", "b", "--ca-cert", ca).must(t, 2, "no certificate in PEM")
}

func TestPasswd(t *testing.T) {
	d := newRemoteDaemon(t)
	url := d.listen()
	d.dew("passwd").must(t, 2, "passwd needs USER")
	d.remote("login", url, "-u", "admin", "-p", "it's").must(t, 0)
	d.types("no\nnew\nnew\n", "passwd").must(t, 1, "cannot change the password: The old password is another one")
	d.types("it's\nnew\nother\n", "passwd").must(t, 2, "the passwords do not match")
	d.types("it's\nnew\nnew\n", "passwd").must(t, 0, "Changed the password of admin")
	d.types("new\nnewer\n", "passwd", "--password-stdin").must(t, 0, "Changed the password")
	d.remote("create-user", "ada", "pw").must(t, 0)
	d.types("x\nx\n", "passwd", "ada").must(t, 0, "Changed the password of ada")
	d.remote("passwd", "adda").must(t, 1, `user "adda" does not exist`, `did you mean "ada"?`)
	if d.accounts.secrets["admin"] != "newer" || d.accounts.secrets["ada"] != "x" {
		t.Errorf("passwords are %v", d.accounts.secrets)
	}
}
