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

// tries is how many times a user can type the password.
const tries = 3

func trustFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "ca-cert", Usage: "PEM `file` with a CA certificate to trust in addition to those of the system"},
		command.BoolFlag("skip-ssl-validation", "Do not verify the TLS certificate (insecure: others on the network can read everything)"),
	}
}

// LoginCommands are the commands that log in and out, and that choose the daemon.
func LoginCommands(g *command.Set) []*cli.Command {
	f := loginFlow{g}
	login := command.Verb{
		Name: "login", Alias: "l", Args: "[URL]", Category: "Login", Usage: "Log in to a daemon and use it for all later commands",
		About: "Without URL, dew logs in to the daemon that it uses now, otherwise to the one of the last logout, otherwise to the one of this machine. dew asks for the values that you do not pass. In scripts, pass the password on stdin or in DEW_PASSWORD: all users of the machine can see the command line.\n\n" +
			"Examples:\n   dew login http://127.0.0.1:8484 -u ada\n   dew login dew.example.com -u ada -o shop -s dev --ca-cert ca.pem\n   dew login https://dew.example.com -u ci --client-credentials --password-stdin < secret",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "a", Usage: "`URL` of the daemon, as with cf"},
			&cli.StringFlag{Name: "u", EnvVars: []string{"DEW_USERNAME"}, Usage: "User or client `name`"},
			&cli.StringFlag{Name: "p", Usage: "User `password` (insecure: other users of this machine can see it)"},
			command.PasswordFlag(),
			&cli.StringFlag{Name: "o", Usage: "Target `org`"},
			&cli.StringFlag{Name: "s", Usage: "Target `space`"},
			command.BoolFlag("client-credentials", "Log in as an OAuth client, with its secret as the password"),
		}, trustFlags()...),
	}
	auth := command.Verb{
		Name: "auth", Args: "[USER] [PASSWORD]", Category: "Login", Usage: "Log in without prompts to the daemon set with dew api",
		About: "The command clears the targeted org and space. If you do not pass USER or PASSWORD, dew reads them from DEW_USERNAME and DEW_PASSWORD.\n\nExamples:\n   DEW_PASSWORD=… dew auth ada\n   dew auth ci --client-credentials --password-stdin < secret",
		Flags: []cli.Flag{command.PasswordFlag(), command.BoolFlag("client-credentials", "Log in as an OAuth client, with its secret as the password")},
	}
	api := command.Verb{
		Name: "api", Args: "[URL]", Category: "Login", Usage: "Set or show the URL of the daemon that dew uses",
		About: "dew keeps a valid session with the daemon. If no URL is set, dew uses the daemon of this machine over its socket, and no login is needed.\n\nExamples:\n   dew api http://127.0.0.1:8484\n   dew api --unset",
		Flags: append([]cli.Flag{command.BoolFlag("unset", "Use the daemon of this machine over its socket"), command.JSONFlag()}, trustFlags()...),
	}
	return []*cli.Command{
		g.WithoutClient(login, func(c *cli.Context) error {
			if c.Args().Present() && c.String("a") != "" {
				return console.UsageError("login takes one URL: pass it as an argument or with -a, not both")
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
			Name: "logout", Alias: "lo", Category: "Login", Usage: "Log out and use the daemon of this machine again",
		}, func(c *cli.Context, w command.Env) error { return runLogout(c.Context, w) }),
		g.CommandWithEnv(command.Verb{
			Name: "oauth-token", Category: "Login", Usage: "Print an access token for programs that call the API",
			About: "Over the socket, it is a token of the administrator.\n\nExample:\n   curl -H \"Authorization: $(dew oauth-token)\" http://127.0.0.1:8484/v3/apps",
		}, func(c *cli.Context, w command.Env) error { return f.runToken(c.Context, w) }),
	}
}

type loginOptions struct {
	URL            string
	User, Password string
	Stdin          bool // read the password from stdin
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

// runLogin logs in, stores the session and chooses a target.
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
	api, err := f.Client(d)
	if err != nil {
		return err
	}
	return chooseTarget(ctx, targetOptions{Org: o.Org, Space: o.Space}, command.Env{Endpoint: d, Client: api, Out: f.Out})
}

// loginEndpoint is the daemon to log in to, with the TLS settings of the options.
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

// lastURL is the URL of the daemon to log in to if the user passes none.
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
		return "", console.UsageError("login needs the URL of a daemon, such as dew login http://127.0.0.1:8484")
	}
	return s.API, nil
}

// trust changes the TLS settings of the session if the options have any.
func trust(s *command.Session, o loginOptions) error {
	if o.Insecure {
		s.Insecure, s.CA = true, ""
	}
	if o.CA == "" {
		return nil
	}
	if o.Insecure {
		return console.UsageError("--ca-cert and --skip-ssl-validation cannot be used together")
	}
	text, err := os.ReadFile(o.CA)
	if err != nil {
		return &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("cannot read the file of --ca-cert: %w", err)}
	}
	s.Insecure, s.CA = false, string(text)
	_, err = s.TLS()
	return err
}

// checkDaemon fails if there is no Cloud Foundry API at the URL.
func (f loginFlow) checkDaemon(ctx context.Context, d command.Endpoint) (*client.Client, error) {
	plain, err := f.AnonymousClient(d)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(d.URL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		f.Out.Warn("passwords and tokens are sent to " + d.URL + " without encryption")
	}
	r, err := plain.Daemon().Root(ctx)
	if err == nil && r.Links.CloudControllerV3 == nil {
		err = fmt.Errorf("no Cloud Foundry API found at %s", d.URL)
	}
	return plain, err
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// authenticate gets a token. Users who type the password can correct it.
func (f loginFlow) authenticate(ctx context.Context, o loginOptions, d command.Endpoint, plain *client.Client) (command.Session, error) {
	s := command.Session{Insecure: d.Session.Insecure, CA: d.Session.CA}
	user := o.User
	if user == "" && !f.Out.Interactive {
		return s, &console.Failure{Status: console.StatusUsage, Err: errors.New("no user name given"), Advice: "Pass it with -u (dew login) or as USER (dew auth), or set DEW_USERNAME"}
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
			return s, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot log in to %s as %s: %w", d.URL, user, err), Advice: "Check the user name and the password"}
		}
		f.Out.Say("The user name or the password is wrong. Try again")
	}
}

func (f loginFlow) runAuth(ctx context.Context, o loginOptions) error {
	d, err := f.Endpoint()
	if err != nil {
		return err
	}
	if d.URL == "" {
		return &console.Failure{Status: console.StatusUsage, Err: errors.New("auth needs the URL of a daemon, and none is set"), Advice: "To set it: dew api http://127.0.0.1:8484"}
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
	f.Out.Say("Logged in to %s as %s. To choose an org and a space: dew target -o ORG -s SPACE", d.URL, d.Session.LoggedInAs())
	return nil
}

// apiView is the output of `dew api`.
type apiView struct {
	API     string `json:"api"`              // URL; empty for the socket
	Socket  string `json:"socket,omitempty"` // if there is no URL
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
		return console.UsageError("api takes URL or --unset, not both")
	case unset:
		err := d.ConfigFile.Update(ctx, func(c *command.Config) error { c.API = ""; return nil })
		if err == nil {
			f.Out.Say("dew now uses the daemon of this machine over its socket")
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
		f.Out.Say("dew now uses %s. To log in: dew login %s", d.URL, d.URL)
		return nil
	}
	f.Out.Say("dew now uses %s as %s", d.URL, d.Session.LoggedInAs())
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

// runLogout deletes the session, and revokes its token if the token is revocable.
func runLogout(ctx context.Context, w command.Env) error {
	if w.URL == "" {
		w.Out.Say("Not logged in: dew uses the daemon of this machine over its socket")
		return nil
	}
	if c := command.ReadClaims(w.Session.Access); c.Revocable && c.ID != "" {
		_ = w.Client.Users().Revoke(ctx, c.ID) // best effort: the token expires anyway, and logout works without the daemon
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
		w.Out.Say("Logged out of %s. dew now uses the daemon of this machine", w.URL)
	}
	return err
}

// runToken prints a valid access token.
func (f loginFlow) runToken(ctx context.Context, w command.Env) error {
	token, err := f.token(ctx, w)
	if err != nil {
		return err
	}
	fmt.Fprintln(w.Out.Out, "bearer "+token)
	return nil
}

// token is the token of the session. Over the socket it is a token of the
// administrator, because users of the socket have all permissions.
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
