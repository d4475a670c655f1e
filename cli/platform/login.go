package platform

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
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// tries is how often a password may be typed wrongly.
const tries = 3

func trustFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "ca-cert", Usage: "`file` with the certificate of the authority to trust, in PEM, beside the system's"},
		command.BoolFlag("skip-ssl-validation", "trust any certificate; whoever is in between can read everything"),
	}
}

// LoginCommands log in and out, and choose the daemon.
func LoginCommands(g *command.Set) []*cli.Command {
	f := loginFlow{g}
	login := command.Verb{
		Name: "login", Alias: "l", Args: "[URL]", Category: "Login", Usage: "log in to a daemon, and speak to it from now on",
		About: "Without URL it is the daemon that dew speaks to, else the one of the last logout, else the one of this machine. What is not given is asked for. In scripts, give the password on stdin or in DEW_PASSWORD: what stands on the command line is seen by everybody on the machine.\n\n" +
			"Examples:\n   dew login http://127.0.0.1:8484 -u ada\n   dew login dew.example.com -u ada -o shop -s dev --ca-cert ca.pem\n   dew login https://dew.example.com -u ci --client-credentials --password-stdin < secret",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "a", Usage: "`URL`, as cf takes it"},
			&cli.StringFlag{Name: "u", EnvVars: []string{"DEW_USERNAME"}, Usage: "`name` of the user or client"},
			&cli.StringFlag{Name: "p", Usage: "`password`; better not here"},
			command.PasswordFlag(),
			&cli.StringFlag{Name: "o", Usage: "`org` to target"},
			&cli.StringFlag{Name: "s", Usage: "`space` to target"},
			command.BoolFlag("client-credentials", "log in as a client, with its secret"),
		}, trustFlags()...),
	}
	auth := command.Verb{
		Name: "auth", Args: "[USER] [PASSWORD]", Category: "Login", Usage: "log in to the daemon that dew api names, without a question",
		About: "The target is cleared. DEW_USERNAME and DEW_PASSWORD stand for what is not given.\n\nExamples:\n   DEW_PASSWORD=… dew auth ada\n   dew auth ci --client-credentials --password-stdin < secret",
		Flags: []cli.Flag{command.PasswordFlag(), command.BoolFlag("client-credentials", "log in as a client, with its secret")},
	}
	api := command.Verb{
		Name: "api", Args: "[URL]", Category: "Login", Usage: "say which daemon dew speaks to; without URL show it",
		About: "A session with the daemon that is still good goes on. Without a URL that was set, dew speaks to the daemon of this machine over its socket, and no login is needed.\n\nExamples:\n   dew api http://127.0.0.1:8484\n   dew api --unset",
		Flags: append([]cli.Flag{command.BoolFlag("unset", "speak to the daemon of this machine over its socket"), command.JSONFlag()}, trustFlags()...),
	}
	return []*cli.Command{
		g.WithoutClient(login, func(c *cli.Context) error {
			if c.Args().Present() && c.String("a") != "" {
				return console.UsageError("login takes one URL: as an argument, or with -a")
			}
			return f.runLogin(c.Context, loginOptionsOf(c))
		}),
		g.WithoutClient(auth, func(c *cli.Context) error {
			o := loginOptions{User: c.Args().First(), Password: c.Args().Get(1), Stdin: c.Bool("password-stdin"), Client: c.Bool("client-credentials")}
			return f.runAuth(c.Context, o)
		}),
		g.WithoutClient(api, func(c *cli.Context) error {
			o := loginOptions{URL: c.Args().First(), Insecure: c.Bool("skip-ssl-validation"), CA: c.String("ca-cert")}
			return f.runAPI(c.Context, o, c.Bool("unset"))
		}),
		g.CommandWithEnv(command.Verb{
			Name: "logout", Alias: "lo", Category: "Login", Usage: "forget the session; dew speaks to the daemon of this machine again",
		}, func(c *cli.Context, w command.Env) error { return runLogout(c.Context, w) }),
		g.CommandWithEnv(command.Verb{
			Name: "oauth-token", Category: "Login", Usage: "print a token, for programs that ask the daemon themselves",
			About: "Over the socket it is one of the administrator.\n\nExample:\n   curl -H \"Authorization: $(dew oauth-token)\" http://127.0.0.1:8484/v3/apps",
		}, func(c *cli.Context, w command.Env) error { return f.runToken(c.Context, w) }),
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
type loginFlow struct{ *command.Set }

// runLogin logs in, remembers the session and chooses a target.
func (f loginFlow) runLogin(ctx context.Context, o loginOptions) error {
	d, err := f.loginEndpoint(ctx, o)
	if err != nil {
		return err
	}
	plain, err := f.checkDaemon(ctx, d)
	if err != nil {
		return err
	}
	if d.Session, err = f.authenticate(ctx, o, d, plain); err != nil {
		return err
	}
	if err := d.SaveSession(ctx); err != nil {
		return err
	}
	d.Target = command.Target{}
	f.Out.Say("Logged in to %s as %s", d.URL, d.Session.LoggedInAs())
	ask, err := f.Client(d)
	if err != nil {
		return err
	}
	return chooseTarget(ctx, targetOptions{Org: o.Org, Space: o.Space}, command.Env{Endpoint: d, Client: ask, Out: f.Out})
}

// loginEndpoint is the daemon to log in to, with the trust that the options say.
func (f loginFlow) loginEndpoint(ctx context.Context, o loginOptions) (command.Endpoint, error) {
	d, err := f.Endpoint()
	if err != nil {
		return d, err
	}
	typed := o.URL
	if typed == "" {
		if typed, err = f.lastURL(ctx, d); err != nil {
			return d, err
		}
	}
	if d.URL, err = command.APIURL(typed); err != nil {
		return d, err
	}
	c, err := d.ConfigFile.Load()
	if err != nil {
		return d, err
	}
	d.Session, d.EnvLogin = c.Sessions[d.URL], command.EnvLogin{}
	return d, trust(&d.Session, o)
}

// lastURL is the daemon that is meant when none is named.
func (f loginFlow) lastURL(ctx context.Context, d command.Endpoint) (string, error) {
	if d.URL != "" {
		return d.URL, nil
	}
	c, err := d.ConfigFile.Load()
	if err != nil {
		return "", err
	}
	if c.Last != "" {
		return c.Last, nil
	}
	plain, err := f.AnonymousClient(d)
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
func trust(s *command.Session, o loginOptions) error {
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
	_, err = s.TLS()
	return err
}

// checkDaemon makes sure that there is a daemon to log in to.
func (f loginFlow) checkDaemon(ctx context.Context, d command.Endpoint) (*client.Client, error) {
	plain, err := f.AnonymousClient(d)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(d.URL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		f.Out.Warn("passwords and tokens go to " + d.URL + " in the clear")
	}
	r, err := plain.Daemon().Root(ctx)
	if err == nil && r.Links.CloudControllerV3 == nil {
		err = fmt.Errorf("there is no Cloud Foundry API at %s", d.URL)
	}
	return plain, err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// authenticate gets a token. A password that was typed may be typed again.
func (f loginFlow) authenticate(ctx context.Context, o loginOptions, d command.Endpoint, plain *client.Client) (command.Session, error) {
	s := command.Session{Insecure: d.Session.Insecure, CA: d.Session.CA}
	user := o.User
	if user == "" && !f.Out.Interactive {
		return s, &console.Failure{Status: console.StatusUsage, Err: errors.New("a user name is needed, and there is no terminal to ask on"), Advice: "give it with -u, or in DEW_USERNAME"}
	}
	if user == "" {
		var err error
		if user, err = f.Out.Ask(ctx, "User: "); err != nil {
			return s, err
		}
	}
	from := console.SecretOptions{Given: o.Password, Stdin: o.Stdin, Env: "DEW_PASSWORD", Prompt: "Password", Flag: "--password-stdin"}
	for left := tries; ; left-- {
		password, err := f.Out.Password(ctx, from)
		if err != nil {
			return s, err
		}
		grant := client.Grant{User: user, Password: password}
		if o.Client {
			grant = client.Grant{Client: user, Secret: password}
		}
		token, err := plain.Users().Login(ctx, grant)
		if err == nil {
			s.SetToken(token)
			s.User, s.Client = grant.User, grant.Client
			return s, nil
		}
		if !command.GrantRefused(err) {
			return s, err
		}
		typed := f.Out.Interactive && o.Password == "" && !o.Stdin && os.Getenv("DEW_PASSWORD") == ""
		if !typed || left <= 1 {
			return s, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("%s does not let %s in: %w", d.URL, user, err), Advice: "check the name and the password"}
		}
		f.Out.Say("That was refused, try again")
	}
}

func (f loginFlow) runAuth(ctx context.Context, o loginOptions) error {
	d, err := f.Endpoint()
	if err != nil {
		return err
	}
	if d.URL == "" {
		return &console.Failure{Status: console.StatusUsage, Err: errors.New("auth needs a daemon to log in to"), Advice: "dew api http://127.0.0.1:8484, or dew login"}
	}
	if o.User == "" {
		o.User = os.Getenv("DEW_USERNAME")
	}
	plain, err := f.checkDaemon(ctx, d)
	if err != nil {
		return err
	}
	if d.Session, err = f.authenticate(ctx, o, d, plain); err != nil {
		return err
	}
	if err := d.SaveSession(ctx); err != nil {
		return err
	}
	f.Out.Say("Logged in to %s as %s; dew target -o ORG -s SPACE says where to work", d.URL, d.Session.LoggedInAs())
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
	d, err := f.Endpoint()
	if err != nil {
		return err
	}
	switch {
	case unset && o.URL != "":
		return console.UsageError("api takes a URL or --unset")
	case unset:
		err := d.ConfigFile.Update(ctx, func(c *command.Config) error { c.API = ""; return nil })
		if err == nil {
			f.Out.Say("dew speaks to the daemon of this machine, over its socket")
		}
		return err
	case o.URL == "":
		return f.showAPI(ctx, d)
	}
	if d, err = f.loginEndpoint(ctx, o); err != nil {
		return err
	}
	if _, err := f.checkDaemon(ctx, d); err != nil {
		return err
	}
	if err := d.SaveSession(ctx); err != nil {
		return err
	}
	if d.Session.Access == "" {
		f.Out.Say("dew speaks to %s; dew login %s lets you in", d.URL, d.URL)
		return nil
	}
	f.Out.Say("dew speaks to %s, as %s", d.URL, d.Session.LoggedInAs())
	return nil
}

func (f loginFlow) showAPI(ctx context.Context, d command.Endpoint) error {
	plain, err := f.AnonymousClient(d)
	if err != nil {
		return err
	}
	v := apiView{API: d.URL, User: d.Session.User, Client: d.Session.Client}
	if d.URL == "" {
		v.Socket = plain.Address()
	}
	r, err := plain.Daemon().Root(ctx)
	if err != nil {
		return err
	}
	if l := r.Links.CloudControllerV3; l != nil {
		v.Version = l.Meta.Version
	}
	if f.Out.JSON {
		return f.Out.Encode(v)
	}
	rows := [][]string{{"api:", d.URL}}
	if d.URL == "" {
		rows = [][]string{{"socket:", v.Socket, "no login is needed"}}
	} else {
		rows = append(rows, []string{"user:", d.Session.LoggedInAs()})
	}
	return f.Out.Table(append(rows, []string{"version:", v.Version}))
}

// runLogout forgets the session. Where the daemon keeps a list of its tokens, it
// forgets this one too.
func runLogout(ctx context.Context, w command.Env) error {
	if w.URL == "" {
		w.Out.Say("dew speaks to the daemon of this machine, where nobody is logged in")
		return nil
	}
	if c := command.ReadClaims(w.Session.Access); c.Revocable && c.ID != "" {
		_ = w.Client.Users().Revoke(ctx, c.ID) // the token ends by itself, and a daemon that is away is no reason to stay
	}
	err := w.ConfigFile.Update(ctx, func(c *command.Config) error {
		delete(c.Sessions, w.URL)
		delete(c.Scripts, w.EnvLogin.Key(w.URL))
		if c.API == w.URL {
			c.API = ""
		}
		c.Last = w.URL
		return nil
	})
	if err == nil {
		w.Out.Say("Logged out of %s; dew speaks to the daemon of this machine", w.URL)
	}
	return err
}

// runToken prints a token that is good for a while.
func (f loginFlow) runToken(ctx context.Context, w command.Env) error {
	token, err := f.token(ctx, w)
	if err != nil {
		return err
	}
	fmt.Fprintln(w.Out.Out, "bearer "+token)
	return nil
}

// token is the session's; at the socket, whoever may ask may be the administrator.
func (f loginFlow) token(ctx context.Context, w command.Env) (string, error) {
	if w.URL != "" {
		tokens, err := f.Tokens(w.Endpoint)
		if err != nil {
			return "", err
		}
		return tokens.Token(ctx)
	}
	return w.Client.Daemon().AdminToken(ctx)
}
