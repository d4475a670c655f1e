package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/store"
)

// Client is a client that sends notifications, with a name for users.
type Client struct {
	ID       string `json:"id"`                 // its id at the authorization server
	Name     string `json:"name"`               // source_name of its registration
	Template string `json:"template,omitempty"` // id; empty: the default template
}

// Kind is a kind of notification of a client.
type Kind struct {
	Client      string `json:"client"`
	ID          string `json:"id"`
	Description string `json:"description"`
	Critical    bool   `json:"critical,omitempty"` // users cannot unsubscribe from it
	Template    string `json:"template,omitempty"` // id; empty: the client's template
}

// PlatformClient is the client for notifications of dew itself. It cannot register
// kinds over HTTP.
const PlatformClient = "dew"

// buckets are the buckets of the service, except those of the queue.
type buckets struct {
	clients      store.Bucket[Client]
	kinds        store.Bucket[Kind]
	templates    store.Bucket[Template]
	unsubscribed store.Bucket[unsubscription]
	silent       store.Bucket[string] // guids of the users who want only critical notifications

	buckets2
}

func newBuckets(db *store.DB) buckets {
	return buckets{
		clients:      store.In[Client](db, "notify clients"),
		kinds:        store.In[Kind](db, "notify kinds"),
		templates:    store.In[Template](db, "notify templates"),
		unsubscribed: store.In[unsubscription](db, "notify unsubscribed"),
		silent:       store.In[string](db, "notify silent"),
		buckets2:     newBuckets2(db),
	}
}

// keyOf joins the parts of a key so that different parts never give the same key.
func keyOf(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return strings.Join(escaped, "/")
}

// registration is a client's request to register its name and kinds.
type registration struct {
	name    string
	kinds   []Kind
	replace bool // drop kinds that are not listed
}

// Register registers kinds of dew itself. Its other kinds stay.
func (s *kinds) Register(name string, kinds ...Kind) error {
	if err := s.storeRegistration(PlatformClient, registration{name: name, kinds: kinds}); err != nil {
		return fmt.Errorf("cannot register the notifications of dew: %w", err)
	}
	return nil
}

// register handles PUT /notifications.
func (s *kinds) register(r request) (any, error) {
	f, err := readFields(r)
	if err != nil {
		return nil, asParseError(err)
	}
	reg, err := readRegistration(f)
	if err != nil {
		return nil, err
	}
	return noContent, s.accept(r.who, reg)
}

// readRegistration parses the body of PUT /notifications.
func readRegistration(f fields) (reg registration, err error) {
	if name, ok := f.unknownKey("source_name", "notifications"); ok {
		return reg, problemf(http.StatusBadRequest, "%q is not a valid property", inbound.Shorten(name))
	}
	if err := f.decode(map[string]any{"source_name": &reg.name}); err != nil {
		return reg, err
	}
	raw, ok := f["notifications"]
	var entries map[string]fields
	if ok {
		if string(raw) == "null" {
			return reg, problemf(http.StatusBadRequest, `only include "notifications" key when adding a notification`)
		}
		if json.Unmarshal(raw, &entries) != nil {
			return reg, errParse
		}
	}
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		k, err := readKind(id, entries[id])
		if err != nil {
			return reg, err
		}
		reg.kinds = append(reg.kinds, k)
	}
	reg.replace = len(reg.kinds) > 0
	return reg, reg.check()
}

func readKind(id string, f fields) (Kind, error) {
	k := Kind{ID: id}
	if f == nil {
		return k, problemf(http.StatusBadRequest, "notification must not be null")
	}
	if name, ok := f.unknownKey("description", "critical"); ok {
		return k, problemf(http.StatusBadRequest, "%q is not a valid property", inbound.Shorten(name))
	}
	return k, f.decode(map[string]any{"description": &k.Description, "critical": &k.Critical})
}

// check returns all errors of a registration at once.
func (reg registration) check() error {
	var wrong []string
	if reg.name == "" {
		wrong = append(wrong, `"source_name" is a required field`)
	}
	for _, k := range reg.kinds {
		switch {
		case k.ID == "":
			wrong = append(wrong, fmt.Sprintf(`notification %q is missing required field "ID"`, k.ID))
		case !kindIDPattern.MatchString(k.ID):
			wrong = append(wrong, fmt.Sprintf("notification %q is improperly formatted: %s", inbound.Shorten(k.ID), kindIDRule))
		}
		if k.Description == "" {
			wrong = append(wrong, fmt.Sprintf(`notification %q is missing required field "Description"`, inbound.Shorten(k.ID)))
		}
	}
	if len(wrong) > 0 {
		return invalid("%s", strings.Join(wrong, ", "))
	}
	return reg.checkLengths()
}

// checkLengths refuses texts that are too long to store.
func (reg registration) checkLengths() error {
	if err := tooLong("source_name", reg.name); err != nil {
		return err
	}
	for _, k := range reg.kinds {
		if err := cmp.Or(tooLong("kind_id", k.ID), tooLong("description", k.Description)); err != nil {
			return err
		}
	}
	return nil
}

// kindIDPattern matches valid ids of kinds. Others can never be sent.
var kindIDPattern = regexp.MustCompile(`^[0-9a-zA-Z_\-.]+$`)

const (
	kindIDRule = "an id has only letters, digits, _, - and ."
	// maxKinds is the number of kinds of one client.
	maxKinds = 500
)

// registerOld handles PUT /registration, the older format.
func (s *kinds) registerOld(r request) (any, error) {
	f, err := readFields(r)
	if err != nil {
		return nil, asParseError(err)
	}
	reg, err := readOldRegistration(f)
	if err != nil {
		return nil, err
	}
	return reply{status: http.StatusOK}, s.accept(r.who, reg)
}

func readOldRegistration(f fields) (reg registration, err error) {
	var entries []fields
	if err := f.decode(map[string]any{"source_description": &reg.name, "kinds": &entries}); err != nil {
		return reg, err
	}
	var wrong []string
	if reg.name == "" {
		wrong = append(wrong, `"source_description" is a required field`)
	}
	_, reg.replace = f["kinds"]
	for _, e := range entries {
		var k Kind
		if err := e.decode(map[string]any{"id": &k.ID, "description": &k.Description, "critical": &k.Critical}); err != nil {
			return reg, err
		}
		reg.kinds = append(reg.kinds, k)
		if more := checkOldKind(k); len(more) > 0 {
			wrong = append(wrong, more...)
			break
		}
	}
	if len(wrong) > 0 {
		return reg, invalid("%s", strings.Join(wrong, ", "))
	}
	return reg, reg.checkLengths()
}

func checkOldKind(k Kind) (wrong []string) {
	switch {
	case k.ID == "":
		wrong = append(wrong, `"kind.id" is a required field`)
	case !kindIDPattern.MatchString(k.ID):
		wrong = append(wrong, `"kind.id" is improperly formatted`)
	}
	if k.Description == "" {
		wrong = append(wrong, `"kind.description" is a required field`)
	}
	return wrong
}

// asParseError returns the error of endpoints that need a body for an empty one.
func asParseError(err error) error {
	if errors.Is(err, errEmpty) {
		return errParse
	}
	return err
}

// accept stores a registration if the caller has permission.
func (s *kinds) accept(who auth.Principal, reg registration) error {
	if who.Client == PlatformClient {
		return forbidden("The notifications of client %q belong to dew itself", PlatformClient)
	}
	critical := slices.ContainsFunc(reg.kinds, func(k Kind) bool { return k.Critical })
	if critical && !hasScope(who, ScopeCritical) {
		return invalid("UAA Scopes Error: Client does not have authority to register critical notifications.")
	}
	return s.storeRegistration(who.Client, reg)
}

// storeRegistration stores a registration, completely or not at all. The client and its
// kinds keep their assigned templates.
func (s *kinds) storeRegistration(client string, reg registration) error {
	return s.c.DB.Update(func(tx *store.Tx) error {
		clients, kinds := s.buckets.clients.With(tx), s.buckets.kinds.With(tx)
		c, err := ignoreNotFound(clients.Get(keyOf(client)))
		if err != nil {
			return err
		}
		c.ID, c.Name = client, reg.name
		if err := clients.Put(keyOf(client), c); err != nil {
			return fmt.Errorf("cannot store client %s: %w", client, err)
		}
		old, err := kinds.Prefix(keyOf(client, ""))
		if err != nil {
			return fmt.Errorf("cannot read the notifications of client %s: %w", client, err)
		}
		templates := map[string]string{}
		for _, k := range old {
			templates[k.ID] = k.Template
		}
		for _, k := range reg.kinds {
			k.Client, k.Template = client, templates[k.ID]
			delete(templates, k.ID)
			if err := kinds.Put(keyOf(client, k.ID), k); err != nil {
				return fmt.Errorf("cannot store notification %s of client %s: %w", k.ID, client, err)
			}
		}
		if !reg.replace {
			return checkKinds(client, len(reg.kinds)+len(templates))
		}
		if err := checkKinds(client, len(reg.kinds)); err != nil {
			return err
		}
		return dropKinds(kinds, client, slices.Sorted(maps.Keys(templates)))
	})
}

// checkKinds refuses a registration after which a client has too many kinds.
func checkKinds(client string, n int) error {
	if n > maxKinds {
		return invalid("Client %q would have %d notifications; the limit is %d per client", inbound.Shorten(client), n, maxKinds)
	}
	return nil
}

func dropKinds(kinds store.Bucket[Kind], client string, ids []string) error {
	for _, id := range ids {
		if err := kinds.Delete(keyOf(client, id)); err != nil {
			return fmt.Errorf("cannot delete notification %s of client %s: %w", id, client, err)
		}
	}
	return nil
}

// ignoreNotFound ignores the error of a missing value.
func ignoreNotFound[T any](v T, err error) (T, error) {
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	return v, err
}

// clientResponse and kindResponse are the JSON format of listed clients.
type (
	clientResponse struct {
		Name     string                  `json:"name"`
		Template string                  `json:"template"`
		Kinds    map[string]kindResponse `json:"notifications"`
	}
	kindResponse struct {
		Description string `json:"description"`
		Template    string `json:"template"`
		Critical    bool   `json:"critical"`
	}
)

// listKinds handles GET /notifications.
func (s *kinds) listKinds(request) (any, error) {
	out := map[string]clientResponse{}
	err := s.c.DB.View(func(tx *store.Tx) error {
		clients, err := s.buckets.clients.With(tx).All()
		if err != nil {
			return fmt.Errorf("cannot list clients: %w", err)
		}
		for _, c := range clients {
			out[c.ID] = clientResponse{Name: c.Name, Template: cmp.Or(c.Template, defaultTemplate), Kinds: map[string]kindResponse{}}
		}
		kinds, err := s.buckets.kinds.With(tx).All()
		if err != nil {
			return fmt.Errorf("cannot list notifications: %w", err)
		}
		for _, k := range kinds {
			out[k.Client].Kinds[k.ID] = kindResponse{Description: k.Description, Template: cmp.Or(k.Template, defaultTemplate), Critical: k.Critical}
		}
		return nil
	})
	return out, err
}

// kind returns a registered kind, or a not-found error.
func (s *core) kind(tx *store.Tx, client, id string) (Kind, error) {
	bucket := s.buckets.kinds
	if tx != nil {
		bucket = bucket.With(tx)
	}
	k, err := bucket.Get(keyOf(client, id))
	if errors.Is(err, store.ErrNotFound) {
		return k, notFound("Notification with ID %q belonging to client %q could not be found", inbound.Shorten(id), inbound.Shorten(client))
	}
	if err != nil {
		return k, fmt.Errorf("cannot read notification %s of client %s: %w", id, client, err)
	}
	return k, nil
}

// client returns a registered client, or a not-found error.
func (s *core) client(tx *store.Tx, id string) (Client, error) {
	c, err := s.buckets.clients.With(tx).Get(keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return c, notFound("Client with ID %q could not be found", inbound.Shorten(id))
	}
	if err != nil {
		return c, fmt.Errorf("cannot read client %s: %w", id, err)
	}
	return c, nil
}

// updateKind handles PUT /clients/{client}/notifications/{kind}.
func (s *kinds) updateKind(r request) (any, error) {
	f, err := readFields(r)
	if err != nil {
		return nil, asParseError(err)
	}
	if _, ok := f.unknownKey("description", "critical", "template"); ok {
		return nil, errParse
	}
	for _, name := range []string{"description", "critical", "template"} {
		if _, ok := f[name]; !ok {
			return nil, invalid("Missing required field '%s'", name)
		}
	}
	var k Kind
	if err := f.decode(map[string]any{"description": &k.Description, "critical": &k.Critical, "template": &k.Template}); err != nil {
		return nil, err
	}
	if err := tooLong("description", k.Description); err != nil {
		return nil, err
	}
	k.Client, k.ID = r.PathValue("client"), r.PathValue("kind")
	return noContent, s.c.DB.Update(func(tx *store.Tx) error { return s.replaceKind(tx, r.who, k) })
}

// replaceKind changes a kind. An empty template does not change its template.
func (s *kinds) replaceKind(tx *store.Tx, who auth.Principal, k Kind) error {
	old, err := s.kind(tx, k.Client, k.ID)
	if err != nil {
		return err
	}
	if k.Critical && !old.Critical && !hasScope(who, ScopeCritical) {
		return invalid("UAA Scopes Error: Client does not have authority to register critical notifications.")
	}
	if k.Client == PlatformClient && k.Critical != old.Critical {
		return forbidden("The notifications of client %q belong to dew itself", PlatformClient)
	}
	if k.Template == "" {
		k.Template = old.Template
	} else if k.Template, err = s.assignable(tx, k.Template); err != nil {
		return err
	}
	if err := s.buckets.kinds.With(tx).Put(keyOf(k.Client, k.ID), k); err != nil {
		return fmt.Errorf("cannot store notification %s of client %s: %w", k.ID, k.Client, err)
	}
	return nil
}

// assignToClient handles PUT /clients/{client}/template.
func (s *kinds) assignToClient(r request) (any, error) {
	template, err := readAssignment(r)
	if err != nil {
		return nil, err
	}
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		c, err := s.client(tx, r.PathValue("client"))
		if err != nil {
			return err
		}
		if c.Template, err = s.assignable(tx, template); err != nil {
			return err
		}
		if err := s.buckets.clients.With(tx).Put(keyOf(c.ID), c); err != nil {
			return fmt.Errorf("cannot store client %s: %w", c.ID, err)
		}
		return nil
	})
}

// assignToKind handles PUT /clients/{client}/notifications/{kind}/template.
func (s *kinds) assignToKind(r request) (any, error) {
	template, err := readAssignment(r)
	if err != nil {
		return nil, err
	}
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		if _, err := s.client(tx, r.PathValue("client")); err != nil {
			return err
		}
		k, err := s.kind(tx, r.PathValue("client"), r.PathValue("kind"))
		if err != nil {
			return err
		}
		if k.Template, err = s.assignable(tx, template); err != nil {
			return err
		}
		if err := s.buckets.kinds.With(tx).Put(keyOf(k.Client, k.ID), k); err != nil {
			return fmt.Errorf("cannot store notification %s of client %s: %w", k.ID, k.Client, err)
		}
		return nil
	})
}

// assignmentKeys are the members of a body that can name the template: that of the
// documentation, and those of the responses to POST /templates, here and in the original
// service.
var assignmentKeys = []string{"template", "template-id", "template_id"}

// readAssignment parses the body of a request that assigns a template. Null is the
// default template.
func readAssignment(r request) (string, error) {
	f, err := readFields(r)
	if err != nil {
		return "", asParseError(err)
	}
	var named, template string
	for _, key := range assignmentKeys {
		if _, ok := f[key]; !ok {
			continue
		}
		var id string
		if err := f.decode(map[string]any{key: &id}); err != nil {
			return "", err
		}
		if named != "" && id != template {
			return "", invalid("%q and %q name different templates", named, key)
		}
		named, template = key, id
	}
	if named == "" {
		return "", invalid(`"template" is a required field: the id of a template, or "default"`)
	}
	return template, nil
}

// assignable returns the id that a client or kind stores for an existing template:
// empty for the default one.
func (s *kinds) assignable(tx *store.Tx, template string) (string, error) {
	if template == "" || template == defaultTemplate {
		return "", nil
	}
	_, err := s.buckets.templates.With(tx).Get(template)
	if errors.Is(err, store.ErrNotFound) {
		return "", invalid("No template with id %q", inbound.Shorten(template))
	}
	if err != nil {
		return "", fmt.Errorf("cannot read template %s: %w", template, err)
	}
	return template, nil
}
