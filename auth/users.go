package auth

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// OriginUAA is the origin of the users whose passwords dew stores.
const OriginUAA = "uaa"

const maxName = 255

// User is a person.
type User struct {
	GUID       string
	Name       string
	Origin     string // system that checks the password: OriginUAA is dew itself
	Email      string
	GivenName  string
	FamilyName string
	Hash       []byte   // bcrypt. Nil means that no password is right.
	Groups     []string // scopes in addition to the default ones
	Active     bool
	Verified   bool
	CreatedAt  time.Time
	UpdatedAt  time.Time
	PasswordAt time.Time // when the password was set
	Version    int       // number of changes
	Epoch      int       // tokens of another epoch are revoked
}

// Scopes returns all scopes that the user can request.
func (u User) Scopes() []string {
	all := slices.Concat(defaultScopes, u.Groups)
	slices.Sort(all)
	return slices.Compact(all)
}

// signature changes when all tokens of the user must become invalid.
func (u User) signature() string {
	return fingerprint("user", u.GUID, string(u.Hash), fmt.Sprint(u.Epoch))
}

// NewUser holds the values of a user to create.
type NewUser struct {
	GUID       string // empty means a new one
	Name       string
	Origin     string // empty means OriginUAA
	Email      string
	GivenName  string
	FamilyName string
	Password   string // empty only if another origin checks it
	Groups     []string
	Inactive   bool
}

// Accounts stores users and clients, and the sessions that are deleted with them.
type Accounts struct {
	db       *store.DB
	tx       *store.Tx // nil means that each method is its own transaction
	hasher   hasher
	users    store.Bucket[User]
	clients  store.Bucket[Client]
	sessions store.Bucket[session]
}

// UsersBucket is the name of the bucket of users.
const UsersBucket = "users"

// NewAccounts returns the accounts that are stored in db. cost is the bcrypt cost, 0
// for its default.
func NewAccounts(db *store.DB, cost int) *Accounts {
	return &Accounts{
		db:     db,
		hasher: newHasher(cost),
		users: store.In(db, UsersBucket, store.Cached(func(u User) User {
			u.Hash, u.Groups = bytes.Clone(u.Hash), slices.Clone(u.Groups)
			return u
		}),
			store.Index("name", func(u User) string { return fold(u.Name) }),
			store.Unique("name and origin", func(u User) string { return fold(u.Name) + "\x00" + fold(u.Origin) })),
		clients: store.In(db, "clients",
			store.Unique("id", func(c Client) string { return fold(c.ID) })),
		sessions: store.In(db, "sessions",
			store.Index("user", func(s session) string { return s.User }),
			store.Index("client", func(s session) string { return s.Client })),
	}
}

// With returns the accounts inside tx. Hashing a password takes a while and blocks
// other writers: set passwords outside the transaction where possible.
func (a *Accounts) With(tx *store.Tx) *Accounts {
	c := *a
	c.tx = tx
	c.users, c.clients, c.sessions = a.users.With(tx), a.clients.With(tx), a.sessions.With(tx)
	return &c
}

// User returns the user with guid.
func (a *Accounts) User(guid string) (User, error) { return get(a.users, "user", guid) }

// UserByName returns the user with the name, ignoring case, and the origin. An empty
// origin means OriginUAA.
func (a *Accounts) UserByName(name, origin string) (User, error) {
	origin = cmp.Or(origin, OriginUAA)
	found, err := a.users.By("name and origin", fold(name)+"\x00"+fold(origin))
	if err != nil {
		return User{}, fmt.Errorf("cannot look up user %q: %w", name, err)
	}
	if len(found) == 0 {
		return User{}, fmt.Errorf("user %q of origin %q: %w", name, origin, ErrNotFound)
	}
	return found[0], nil
}

// UsersNamed returns the users with the name in all origins.
func (a *Accounts) UsersNamed(name string) ([]User, error) {
	found, err := a.users.By("name", fold(name))
	if err != nil {
		return nil, fmt.Errorf("cannot look up users %q: %w", name, err)
	}
	return found, nil
}

// Users returns all users by name.
func (a *Accounts) Users() ([]User, error) {
	all, err := a.users.Sorted("name and origin")
	if err != nil {
		return nil, fmt.Errorf("cannot list users: %w", err)
	}
	return all, nil
}

// CreateUser stores a new user. It returns ErrTaken if the origin already has a user
// with the name, or if the guid exists.
func (a *Accounts) CreateUser(n NewUser) (User, error) {
	u := User{
		GUID: n.GUID, Name: n.Name, Origin: cmp.Or(n.Origin, OriginUAA), Email: n.Email,
		GivenName: n.GivenName, FamilyName: n.FamilyName, Groups: slices.Clone(n.Groups),
		Active: !n.Inactive, Verified: true, CreatedAt: now(),
	}
	u.UpdatedAt, u.PasswordAt = u.CreatedAt, u.CreatedAt
	if u.GUID == "" {
		u.GUID = uuid.NewString()
	}
	if err := u.check(); err != nil {
		return u, err
	}
	if n.Password != "" || u.Origin == OriginUAA {
		hash, err := a.hasher.hash("password", n.Password)
		if err != nil {
			return u, err
		}
		u.Hash = hash
	}
	return u, a.update(func(a *Accounts) error {
		if err := a.checkFree(u.GUID); err != nil {
			return err
		}
		return a.storeUser(u)
	})
}

// checkFree refuses an id that a user or a client has. Roles are given to the ids of
// both, so an account with the id of another would have the other's roles.
func (a *Accounts) checkFree(id string) error {
	if _, err := a.User(id); !errors.Is(err, ErrNotFound) {
		return cmp.Or(err, fmt.Errorf("user %s: %w", id, ErrTaken))
	}
	if _, err := a.Client(id); !errors.Is(err, ErrNotFound) {
		return cmp.Or(err, fmt.Errorf("client %s: %w", id, ErrTaken))
	}
	return nil
}

// UpdateUser changes a user in one transaction. fn cannot change guid, password and
// times.
func (a *Accounts) UpdateUser(guid string, fn func(u *User) error) (u User, err error) {
	err = a.update(func(a *Accounts) error {
		old, err := a.User(guid)
		if err != nil {
			return err
		}
		u = old
		u.Groups = slices.Clone(old.Groups)
		if err := fn(&u); err != nil {
			return err
		}
		u.GUID, u.Hash, u.PasswordAt, u.CreatedAt = old.GUID, old.Hash, old.PasswordAt, old.CreatedAt
		u.Version = old.Version + 1
		u.UpdatedAt = now()
		if err := u.check(); err != nil {
			return err
		}
		return a.storeUser(u)
	})
	return u, err
}

// SetPassword sets another password for a user, which revokes all tokens of the user.
func (a *Accounts) SetPassword(guid, password string) error {
	hash, err := a.hasher.hash("password", password)
	if err != nil {
		return err
	}
	return a.update(func(a *Accounts) error {
		u, err := a.User(guid)
		if err != nil {
			return err
		}
		u.Hash, u.PasswordAt = hash, now()
		u.UpdatedAt = u.PasswordAt
		u.Version++
		if err := a.storeUser(u); err != nil {
			return err
		}
		return a.deleteSessions("user", guid)
	})
}

// CheckPassword returns the user with name and password, or ErrBadPassword. It takes
// the same time for an unknown name.
func (a *Accounts) CheckPassword(name, password string) (User, error) {
	return a.checkPassword(name, OriginUAA, password)
}

func (a *Accounts) checkPassword(name, origin, password string) (User, error) {
	u, err := a.UserByName(name, origin)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return User{}, err
	}
	if !a.hasher.matches(u.Hash, password) || !u.Active {
		return User{}, ErrBadPassword
	}
	return u, nil
}

// DeleteUser removes a user and revokes its tokens. It does not delete roles: delete
// them in the same transaction.
func (a *Accounts) DeleteUser(guid string) error {
	return a.update(func(a *Accounts) error {
		if _, err := a.User(guid); err != nil {
			return err
		}
		if err := a.users.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete user %s: %w", guid, err)
		}
		return a.deleteSessions("user", guid)
	})
}

func (a *Accounts) storeUser(u User) error {
	err := a.users.Put(u.GUID, u)
	if errors.Is(err, store.ErrTaken) {
		return fmt.Errorf("user name %q of origin %q: %w", u.Name, u.Origin, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("cannot store user %s: %w", u.GUID, err)
	}
	return nil
}

func (u User) check() error {
	if err := checkGUID(u.GUID); err != nil {
		return err
	}
	for _, f := range []struct{ key, value string }{
		{"userName", u.Name},
		{"origin", u.Origin},
		{"emails", u.Email},
		{"name.givenName", u.GivenName},
		{"name.familyName", u.FamilyName},
	} {
		if err := checkText(f.key, f.value); err != nil {
			return err
		}
	}
	switch {
	case strings.TrimSpace(u.Name) == "":
		return &Invalid{Key: "userName", Message: "A username must be provided."}
	case strings.ContainsFunc(u.Name, unicode.IsSpace):
		return &Invalid{Key: "userName", Message: "A username must not contain spaces."}
	case u.Origin == "":
		return &Invalid{Key: "origin", Message: "must not be empty"}
	case strings.ContainsFunc(u.Email, unicode.IsSpace):
		return &Invalid{Key: "emails", Message: "an email address must not contain spaces"}
	}
	return checkScopes("groups", u.Groups)
}

// checkGUID accepts only ids that are valid in a path and in a key.
func checkGUID(guid string) error {
	ok := guid != "" && len(guid) <= maxName && !strings.ContainsFunc(guid, func(r rune) bool {
		return r > unicode.MaxASCII || !(unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.", r))
	})
	if !ok {
		return &Invalid{Key: "id", Message: fmt.Sprintf("must have 1 to %d characters: letters, digits, -, _ and .", maxName)}
	}
	return nil
}

// checkText refuses characters that could break a log line, a header or a mail.
func checkText(key, value string) error {
	switch {
	case len(value) > maxName:
		return &Invalid{Key: key, Message: fmt.Sprintf("has more than %d bytes", maxName)}
	case strings.ContainsFunc(value, unicode.IsControl) || strings.ContainsRune(value, unicode.ReplacementChar):
		return &Invalid{Key: key, Message: "contains a control character or the character U+FFFD"}
	}
	return nil
}

func (a *Accounts) update(fn func(a *Accounts) error) error {
	if a.tx != nil {
		return fn(a)
	}
	return a.db.Update(func(tx *store.Tx) error { return fn(a.With(tx)) })
}

// fold returns a name in the form that is compared.
func fold(name string) string { return strings.ToLower(name) }

// get reads a value that must exist.
func get[T any](b store.Bucket[T], noun, key string) (v T, err error) {
	v, err = b.Get(key)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s %s: %w", noun, key, ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read %s %s: %w", noun, key, err)
	}
	return v, nil
}

// now returns the time without the parts that the store would lose, so that returned
// values equal stored ones.
func now() time.Time { return time.Now().UTC().Round(0) }
