package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

// tries is how often a password may be typed wrongly.
const tries = 3

func trustFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "ca-cert", Usage: "`file` with the certificate of the authority to trust, in PEM, beside the system's"},
		boolFlag("skip-ssl-validation", "trust any certificate; whoever is in between can read everything"),
	}
}

func loginCommands(g *global) []*cli.Command {
	f := loginFlow{g}
	login := verb{
		name: "login", alias: "l", args: "[URL]", category: "Login", usage: "log in to a daemon, and speak to it from now on",
		about: "Without URL it is the daemon that dew speaks to, else the one of the last logout, else the one of this machine. What is not given is asked for. In scripts, give the password on stdin or in DEW_PASSWORD: what stands on the command line is seen by everybody on the machine.\n\n" +
			"Examples:\n   dew login http://127.0.0.1:8484 -u ada\n   dew login dew.example.com -u ada -o shop -s dev --ca-cert ca.pem\n   dew login https://dew.example.com -u ci --client-credentials --password-stdin < secret",
		flags: append([]cli.Flag{
			&cli.StringFlag{Name: "a", Usage: "`URL`, as cf takes it"},
			&cli.StringFlag{Name: "u", EnvVars: []string{"DEW_USERNAME"}, Usage: "`name` of the user or client"},
			&cli.StringFlag{Name: "p", Usage: "`password`; better not here"},
			passwordFlag(),
			&cli.StringFlag{Name: "o", Usage: "`org` to target"},
			&cli.StringFlag{Name: "s", Usage: "`space` to target"},
			boolFlag("client-credentials", "log in as a client, with its secret"),
		}, trustFlags()...),
	}
	auth := verb{
		name: "auth", args: "[USER] [PASSWORD]", category: "Login", usage: "log in to the daemon that dew api names, without a question",
		about: "The target is cleared. DEW_USERNAME and DEW_PASSWORD stand for what is not given.\n\nExamples:\n   DEW_PASSWORD=… dew auth ada\n   dew auth ci --client-credentials --password-stdin < secret",
		flags: []cli.Flag{passwordFlag(), boolFlag("client-credentials", "log in as a client, with its secret")},
	}
	api := verb{
		name: "api", args: "[URL]", category: "Login", usage: "say which daemon dew speaks to; without URL show it",
		about: "A session with the daemon that is still good goes on. Without a URL that was set, dew speaks to the daemon of this machine over its socket, and no login is needed.\n\nExamples:\n   dew api http://127.0.0.1:8484\n   dew api --unset",
		flags: append([]cli.Flag{boolFlag("unset", "speak to the daemon of this machine over its socket"), jsonFlag()}, trustFlags()...),
	}
	return []*cli.Command{
		g.plain(login, func(c *cli.Context) error {
			if c.Args().Present() && c.String("a") != "" {
				return console.UsageError("login takes one URL: as an argument, or with -a")
			}
			return f.runLogin(c.Context, loginOptionsOf(c))
		}),
		g.plain(auth, func(c *cli.Context) error {
			o := loginOptions{User: c.Args().First(), Password: c.Args().Get(1), Stdin: c.Bool("password-stdin"), Client: c.Bool("client-credentials")}
			return f.runAuth(c.Context, o)
		}),
		g.plain(api, func(c *cli.Context) error {
			o := loginOptions{URL: c.Args().First(), Insecure: c.Bool("skip-ssl-validation"), CA: c.String("ca-cert")}
			return f.runAPI(c.Context, o, c.Bool("unset"))
		}),
		g.commandAt(verb{
			name: "logout", alias: "lo", category: "Login", usage: "forget the session; dew speaks to the daemon of this machine again",
		}, func(c *cli.Context, w where) error { return runLogout(c.Context, w) }),
		g.commandAt(verb{
			name: "oauth-token", category: "Login", usage: "print a token, for programs that ask the daemon themselves",
			about: "Over the socket it is one of the administrator.\n\nExample:\n   curl -H \"Authorization: $(dew oauth-token)\" http://127.0.0.1:8484/v3/apps",
		}, func(c *cli.Context, w where) error { return f.runToken(c.Context, w) }),
	}
}

type loginOptions struct {
	URL            string
	User, Password string
	Stdin          bool // the password is there
	Client         bool
	Org, Space     string
	Insecure       bool
	CA             string // file
}

func loginOptionsOf(c *cli.Context) loginOptions {
	return loginOptions{
		URL: strings.TrimSpace(c.Args().First() + c.String("a")), User: c.String("u"), Password: c.String("p"), Stdin: c.Bool("password-stdin"),
		Client: c.Bool("client-credentials"), Org: c.String("o"), Space: c.String("s"), Insecure: c.Bool("skip-ssl-validation"), CA: c.String("ca-cert"),
	}
}

// loginFlow logs dew in to a daemon.
type loginFlow struct{ *global }

// runLogin logs in, remembers the session and chooses a target.
func (f loginFlow) runLogin(ctx context.Context, o loginOptions) error {
	d, err := f.loginDoor(ctx, o)
	if err != nil {
		return err
	}
	plain, err := f.greet(ctx, d)
	if err != nil {
		return err
	}
	if d.past, err = f.authenticate(ctx, o, d, plain); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	d.target = place{}
	f.out.Say("Logged in to %s as %s", d.url, d.past.who())
	ask, err := f.open(d)
	if err != nil {
		return err
	}
	return chooseTarget(ctx, targetOptions{Org: o.Org, Space: o.Space}, where{door: d, ask: ask, out: f.out})
}

// loginDoor is the daemon to log in to, with the trust that the options say.
func (f loginFlow) loginDoor(ctx context.Context, o loginOptions) (door, error) {
	d, err := f.door()
	if err != nil {
		return d, err
	}
	typed := o.URL
	if typed == "" {
		if typed, err = f.lastURL(ctx, d); err != nil {
			return d, err
		}
	}
	if d.url, err = apiURL(typed); err != nil {
		return d, err
	}
	c, err := d.memory.load()
	if err != nil {
		return d, err
	}
	d.past, d.script = c.Sessions[d.url], script{}
	return d, trust(&d.past, o)
}

// lastURL is the daemon that is meant when none is named.
func (f loginFlow) lastURL(ctx context.Context, d door) (string, error) {
	if d.url != "" {
		return d.url, nil
	}
	c, err := d.memory.load()
	if err != nil {
		return "", err
	}
	if c.Last != "" {
		return c.Last, nil
	}
	plain, err := f.anonymous(d)
	if err != nil {
		return "", err
	}
	s, err := plain.Daemon().Status(ctx)
	if err != nil || s.API == "" {
		return "", console.UsageError("which daemon? Give its address: dew login http://127.0.0.1:8484")
	}
	return s.API, nil
}

// trust changes whom the session trusts, if the options say something about it.
func trust(s *session, o loginOptions) error {
	if o.Insecure {
		s.Insecure, s.CA = true, ""
	}
	if o.CA == "" {
		return nil
	}
	if o.Insecure {
		return console.UsageError("--ca-cert and --skip-ssl-validation exclude each other")
	}
	text, err := os.ReadFile(o.CA)
	if err != nil {
		return &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("--ca-cert: cannot read it: %w", err)}
	}
	s.Insecure, s.CA = false, string(text)
	_, err = s.tls()
	return err
}

// greet makes sure that there is a daemon to log in to.
func (f loginFlow) greet(ctx context.Context, d door) (*client.Client, error) {
	plain, err := f.anonymous(d)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(d.url); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		f.out.Warn("passwords and tokens go to " + d.url + " in the clear")
	}
	r, err := plain.Daemon().Root(ctx)
	if err == nil && r.Links.CloudControllerV3 == nil {
		err = fmt.Errorf("there is no Cloud Foundry API at %s", d.url)
	}
	return plain, err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// authenticate gets a token. A password that was typed may be typed again.
func (f loginFlow) authenticate(ctx context.Context, o loginOptions, d door, plain *client.Client) (session, error) {
	s := session{Insecure: d.past.Insecure, CA: d.past.CA}
	user := o.User
	if user == "" && !f.out.Interactive {
		return s, &console.Failure{Status: console.StatusUsage, Err: errors.New("a user name is needed, and there is no terminal to ask on"), Todo: "give it with -u, or in DEW_USERNAME"}
	}
	if user == "" {
		var err error
		if user, err = f.out.Ask(ctx, "User: "); err != nil {
			return s, err
		}
	}
	from := console.SecretOptions{Given: o.Password, Stdin: o.Stdin, Env: "DEW_PASSWORD", Prompt: "Password", Flag: "--password-stdin"}
	for left := tries; ; left-- {
		password, err := f.out.Password(ctx, from)
		if err != nil {
			return s, err
		}
		grant := client.Grant{User: user, Password: password}
		if o.Client {
			grant = client.Grant{Client: user, Secret: password}
		}
		token, err := plain.Users().Login(ctx, grant)
		if err == nil {
			s.take(token)
			s.User, s.Client = grant.User, grant.Client
			return s, nil
		}
		if !refused(err) {
			return s, err
		}
		typed := f.out.Interactive && o.Password == "" && !o.Stdin && os.Getenv("DEW_PASSWORD") == ""
		if !typed || left <= 1 {
			return s, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s does not let %s in: %w", d.url, user, err), Todo: "check the name and the password"}
		}
		f.out.Say("That was refused, try again")
	}
}

// begin remembers the session, and that this daemon is spoken to from now on.
func (d door) begin(ctx context.Context) error {
	return d.memory.update(ctx, func(c *config) error {
		c.API = d.url
		c.Sessions[d.url] = d.past
		return nil
	})
}

func (f loginFlow) runAuth(ctx context.Context, o loginOptions) error {
	d, err := f.door()
	if err != nil {
		return err
	}
	if d.url == "" {
		return &console.Failure{Status: console.StatusUsage, Err: errors.New("auth needs a daemon to log in to"), Todo: "dew api http://127.0.0.1:8484, or dew login"}
	}
	if o.User == "" {
		o.User = os.Getenv("DEW_USERNAME")
	}
	plain, err := f.greet(ctx, d)
	if err != nil {
		return err
	}
	if d.past, err = f.authenticate(ctx, o, d, plain); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	f.out.Say("Logged in to %s as %s; dew target -o ORG -s SPACE says where to work", d.url, d.past.who())
	return nil
}

// apiView is what `dew api` shows.
type apiView struct {
	API     string `json:"api"`              // URL, or empty
	Socket  string `json:"socket,omitempty"` // instead
	User    string `json:"user,omitempty"`
	Client  string `json:"client,omitempty"`
	Version string `json:"version,omitempty"` // of the API
}

func (f loginFlow) runAPI(ctx context.Context, o loginOptions, unset bool) error {
	d, err := f.door()
	if err != nil {
		return err
	}
	switch {
	case unset && o.URL != "":
		return console.UsageError("api takes a URL or --unset")
	case unset:
		err := d.memory.update(ctx, func(c *config) error { c.API = ""; return nil })
		if err == nil {
			f.out.Say("dew speaks to the daemon of this machine, over its socket")
		}
		return err
	case o.URL == "":
		return f.showAPI(ctx, d)
	}
	if d, err = f.loginDoor(ctx, o); err != nil {
		return err
	}
	if _, err := f.greet(ctx, d); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	if d.past.Access == "" {
		f.out.Say("dew speaks to %s; dew login %s lets you in", d.url, d.url)
		return nil
	}
	f.out.Say("dew speaks to %s, as %s", d.url, d.past.who())
	return nil
}

func (f loginFlow) showAPI(ctx context.Context, d door) error {
	plain, err := f.anonymous(d)
	if err != nil {
		return err
	}
	v := apiView{API: d.url, User: d.past.User, Client: d.past.Client}
	if d.url == "" {
		v.Socket = plain.Door()
	}
	r, err := plain.Daemon().Root(ctx)
	if err != nil {
		return err
	}
	if l := r.Links.CloudControllerV3; l != nil {
		v.Version = l.Meta.Version
	}
	if f.out.JSON {
		return f.out.Encode(v)
	}
	rows := [][]string{{"api:", d.url}}
	if d.url == "" {
		rows = [][]string{{"socket:", v.Socket, "no login is needed"}}
	} else {
		rows = append(rows, []string{"user:", d.past.who()})
	}
	return f.out.Table(append(rows, []string{"version:", v.Version}))
}

// runLogout forgets the session. Where the daemon keeps a list of its tokens, it
// forgets this one too.
func runLogout(ctx context.Context, w where) error {
	if w.url == "" {
		w.out.Say("dew speaks to the daemon of this machine, where nobody is logged in")
		return nil
	}
	if c := readClaims(w.past.Access); c.Revocable && c.ID != "" {
		_ = w.ask.Users().Revoke(ctx, c.ID) // the token ends by itself, and a daemon that is away is no reason to stay
	}
	err := w.memory.update(ctx, func(c *config) error {
		delete(c.Sessions, w.url)
		delete(c.Scripts, w.script.key(w.url))
		if c.API == w.url {
			c.API = ""
		}
		c.Last = w.url
		return nil
	})
	if err == nil {
		w.out.Say("Logged out of %s; dew speaks to the daemon of this machine", w.url)
	}
	return err
}

// runToken prints a token that is good for a while.
func (f loginFlow) runToken(ctx context.Context, w where) error {
	token, err := f.token(ctx, w)
	if err != nil {
		return err
	}
	fmt.Fprintln(w.out.Out, "bearer "+token)
	return nil
}

// token is the session's; at the socket, whoever may ask may be the administrator.
func (f loginFlow) token(ctx context.Context, w where) (string, error) {
	if w.url != "" {
		tokens, err := f.tokens(w.door)
		if err != nil {
			return "", err
		}
		return tokens.Token(ctx)
	}
	return w.ask.Daemon().AdminToken(ctx)
}
