package auth

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/auth/throttle"
	"github.com/dewrun/dew/store"
)

// AdminName is the user that the first start creates.
const AdminName = "admin"

// The built-in clients.
const (
	ClientCF  = "cf"        // the command line, which has no secret
	ClientSSH = "ssh-proxy" // the ssh proxy, which one-time codes are issued for
)

// Config holds the settings of a Server.
type Config struct {
	DB            *store.DB
	Keys          string // folder of the signing keys, 0700
	AdminPassword string // file with the first password of admin, 0600
	Domain        string // domain of admin's mail address
	PublicURL     string // URL of the API, without a trailing slash
	Logger        *slog.Logger
	Cost          int // bcrypt cost, 0 for its default

	// Codes redeems authorization codes of the login page. Nil means that there are none.
	Codes Codes

	// Record is called for every change of a user or client that was made or refused.
	// It gets the kind of event, the caller, and guid and name of the changed account.
	// It can be nil.
	Record func(kind string, who Principal, target, name string)
}

// Server is the authorization server.
type Server struct {
	*core
	*oauthHandlers
	*userHandlers
	*groupHandlers
	*clientHandlers
	handler http.Handler
}

// core holds the common parts of all handlers: authentication, permissions and
// responses.
type core struct {
	*tokens
	log          *slog.Logger
	roles        *Roles
	groupRecords store.Bucket[storedGroup]
	passcodes    *codeStore // for the password grant
	throttle     *throttle.Throttle
}

// The handlers, by subject.
type (
	oauthHandlers  struct{ *core }
	userHandlers   struct{ *core }
	groupHandlers  struct{ *core }
	clientHandlers struct{ *core }
)

// tokens issues, verifies and revokes tokens and one-time codes.
type tokens struct {
	cfg      Config
	issuer   string
	keys     keyring
	accounts *Accounts
	revoked  store.Bucket[revocation]
	codes    *codeStore // for the ssh proxy

	mu        sync.Mutex
	lastSweep time.Time // guarded by mu
}

// Open returns the server that is stored in c.DB. The first start creates a signing
// key, the user admin, and the built-in clients.
func Open(c Config) (*Server, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	keys, err := loadKeys(c.Keys)
	if err != nil {
		return nil, err
	}
	k := &core{
		tokens: &tokens{
			cfg: c, issuer: c.PublicURL + "/uaa/oauth/token", keys: keys, accounts: NewAccounts(c.DB, c.Cost),
			revoked: store.In[revocation](c.DB, "revoked tokens"), codes: newCodeStore(),
		},
		log: c.Logger, roles: NewRoles(c.DB), groupRecords: store.In[storedGroup](c.DB, "groups"),
		passcodes: newCodeStore(), throttle: throttle.New(),
	}
	s := &Server{
		core: k, oauthHandlers: &oauthHandlers{k}, userHandlers: &userHandlers{k}, groupHandlers: &groupHandlers{k},
		clientHandlers: &clientHandlers{k},
	}
	s.handler = s.routes()
	if err := s.createAdmin(); err != nil {
		return nil, err
	}
	if err := s.createClients(); err != nil {
		return nil, err
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	return s, nil
}

// Accounts returns the users and clients.
func (s *Server) Accounts() *Accounts { return s.accounts }

// Handler serves everything under /uaa/.
func (s *Server) Handler() http.Handler { return s.handler }

// createAdmin creates the first user if there is no administrator. It does not create a
// renamed or deleted admin again as long as there is another administrator: many people
// could know the password. It writes the password to disk before it creates the user,
// so that an interrupted start loses nothing.
func (s *Server) createAdmin() error {
	users, err := s.accounts.Users()
	if err != nil {
		return err
	}
	for _, u := range users {
		if fold(u.Name) == AdminName && u.Origin == OriginUAA || u.Active && slices.Contains(u.Groups, ScopeAdmin) {
			return nil // admin exists and keeps its password, or there is another administrator
		}
	}
	password, err := s.adminPassword()
	if err != nil {
		return err
	}
	_, err = s.accounts.CreateUser(NewUser{Name: AdminName, Email: "admin@" + s.cfg.Domain, Password: password, Groups: adminGroups})
	if err != nil {
		return fmt.Errorf("cannot create the user admin: %w", err)
	}
	s.log.Info("created the user admin", "password_file", s.cfg.AdminPassword)
	return nil
}

func (s *Server) adminPassword() (string, error) {
	raw, err := os.ReadFile(s.cfg.AdminPassword)
	if errors.Is(err, fs.ErrNotExist) {
		password := rand.Text()
		return password, writeFile(s.cfg.AdminPassword, []byte(password+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the password file of admin: %w", err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" {
		return "", fmt.Errorf("cannot use %s as the password of admin: the file is empty; write a password into it or remove it", s.cfg.AdminPassword)
	}
	if err := os.Chmod(s.cfg.AdminPassword, 0o600); err != nil {
		return "", fmt.Errorf("cannot restrict access to the password file of admin: %w", err)
	}
	return password, nil
}

// FirstPassword returns the password in the file as long as it is admin's password. It
// returns ErrNotFound if admin has another password or does not exist.
func (s *Server) FirstPassword() (string, error) {
	raw, err := os.ReadFile(s.cfg.AdminPassword)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("password of %s: %w", AdminName, ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the password file of %s: %w", AdminName, err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	_, err = s.accounts.CheckPassword(AdminName, password)
	if errors.Is(err, ErrBadPassword) {
		return "", fmt.Errorf("password of %s: %w", AdminName, ErrNotFound)
	}
	return password, err
}

// UserToken returns a token of the user with a name, without the password. It is for
// listeners that identify the caller by other means.
func (s *Server) UserToken(name string) (string, error) {
	u, err := s.accounts.UserByName(name, OriginUAA)
	if err != nil {
		return "", err
	}
	c, err := s.accounts.Client(ClientCF)
	if err != nil {
		return "", err
	}
	if !u.Active {
		return "", fmt.Errorf("user %q is not active: %w", name, ErrNotFound)
	}
	return s.sign(s.userClaims(u, c, session{
		Scopes: intersect(u.Scopes(), c.allows), Grant: GrantPassword, Signature: u.signature(), CreatedAt: now(),
	}))
}

func (s *Server) createClients() error {
	for _, n := range []NewClient{
		{ID: ClientCF, Name: "command line", GrantTypes: []string{GrantPassword, GrantRefresh}, Scopes: []string{anyScope}, Authorities: []string{"uaa.none"}},
		{
			ID: ClientSSH, Name: "ssh", GrantTypes: []string{GrantCode}, Scopes: []string{"openid", ScopeRead, ScopeWrite},
			Authorities: []string{"uaa.none"}, RedirectURIs: []string{s.cfg.PublicURL + "/uaa/login"},
		},
	} {
		if _, err := s.accounts.Client(n.ID); !errors.Is(err, ErrNotFound) {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := s.accounts.CreateClient(n); err != nil {
			return fmt.Errorf("cannot create the client %s: %w", n.ID, err)
		}
	}
	return nil
}

// builtIn reports whether dew needs the client.
func builtIn(client string) bool { return client == ClientCF || client == ClientSSH }
