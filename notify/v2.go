package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
)

// Version 2 uses other terms: a client has senders, a sender has campaign types, and a
// campaign of a type goes to many recipients. All resources belong to the client that
// created them; other clients cannot see them.

// sender is the sender of a campaign.
type sender struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Name   string `json:"name"`
}

// campaignType is a type of campaign, which users can unsubscribe from.
type campaignType struct {
	ID          string `json:"id"`
	Sender      string `json:"sender"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Critical    bool   `json:"critical,omitempty"`
	Template    string `json:"template,omitempty"` // id; empty: the default template
}

// campaign is a campaign with its recipients.
type campaign struct {
	ID       string              `json:"id"`
	Sender   string              `json:"sender"`
	Type     string              `json:"type"`
	SendTo   map[string][]string `json:"send_to"`
	Text     string              `json:"text"`
	HTML     string              `json:"html"`
	Subject  string              `json:"subject"`
	Template string              `json:"template"`
	ReplyTo  string              `json:"reply_to"`
	Created  time.Time           `json:"created"`
}

// campaignTime has the time after which a campaign can be dropped.
type campaignTime struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
}

type buckets2 struct {
	senders       store.Bucket[sender]
	types         store.Bucket[campaignType]
	templates2    store.Bucket[Template]
	campaigns     store.Bucket[campaign]
	campaignTimes store.Bucket[campaignTime]
	unsubscribers store.Bucket[unsubscription] // Kind is the campaign type
}

func newBuckets2(db *store.DB) buckets2 {
	return buckets2{
		senders: store.In(db, "notify senders",
			store.Index("client", func(s sender) string { return s.Client }),
			store.Unique("name", func(s sender) string { return nameKey(s.Client, s.Name) })),
		types: store.In(db, "notify campaign types",
			store.Index("sender", func(t campaignType) string { return t.Sender }),
			store.Unique("name", func(t campaignType) string { return nameKey(t.Sender, t.Name) })),
		templates2: store.In(db, "notify templates 2",
			store.Index("client", func(t Template) string { return t.Client })),
		campaigns:     store.In[campaign](db, "notify campaigns"),
		campaignTimes: store.In[campaignTime](db, "notify campaign times"),
		unsubscribers: store.In[unsubscription](db, "notify unsubscribers"),
	}
}

// nameKey returns a key that makes a name unique per owner, or "" for an empty name.
func nameKey(owner, name string) string {
	if name == "" {
		return ""
	}
	return keyOf(owner, name)
}

// permissions2 has the required permission of every pattern of version 2.
var permissions2 = map[string]permission{
	"GET /{$}":  {open: true},
	"GET /info": {open: true},

	"POST /senders":        {oneOf: []string{ScopeWrite}},
	"GET /senders":         {oneOf: []string{ScopeWrite}},
	"GET /senders/{id}":    {oneOf: []string{ScopeWrite}},
	"PUT /senders/{id}":    {oneOf: []string{ScopeWrite}},
	"DELETE /senders/{id}": {oneOf: []string{ScopeWrite}},

	"POST /senders/{id}/campaign_types": {oneOf: []string{ScopeWrite}},
	"GET /senders/{id}/campaign_types":  {oneOf: []string{ScopeWrite}},
	"GET /campaign_types/{id}":          {oneOf: []string{ScopeWrite}},
	"PUT /campaign_types/{id}":          {oneOf: []string{ScopeWrite}},
	"DELETE /campaign_types/{id}":       {oneOf: []string{ScopeWrite}},

	"POST /templates":           {oneOf: []string{ScopeWrite}},
	"GET /templates":            {oneOf: []string{ScopeWrite}},
	"GET /templates/{id}":       {oneOf: []string{ScopeWrite}},
	"PUT /templates/{id}":       {oneOf: []string{ScopeWrite}},
	"DELETE /templates/{id}":    {oneOf: []string{ScopeWrite}},
	"PUT /templates/default":    {oneOf: []string{ScopeAdmin}}, // all clients share it
	"DELETE /templates/default": {oneOf: []string{ScopeAdmin}},

	"POST /senders/{id}/campaigns": {oneOf: []string{ScopeWrite}},
	"GET /campaigns/{id}":          {oneOf: []string{ScopeWrite}},
	"GET /campaigns/{id}/status":   {oneOf: []string{ScopeWrite}},

	"PUT /campaign_types/{id}/unsubscribers/{user}":    {oneOf: []string{ScopePrefsAdmin, ScopePrefsWrite}, self: true},
	"DELETE /campaign_types/{id}/unsubscribers/{user}": {oneOf: []string{ScopePrefsAdmin, ScopePrefsWrite}, self: true},
}

// endpoints2 returns the endpoints of version 2.
func (s *Server) endpoints2() map[string]endpoint {
	return map[string]endpoint{
		"GET /{$}":  s.root2,
		"GET /info": func(request) (any, error) { return map[string]int{"version": delivery.V2}, nil },

		"POST /senders":        s.createSender,
		"GET /senders":         s.listSenders,
		"GET /senders/{id}":    s.getSender,
		"PUT /senders/{id}":    s.updateSender,
		"DELETE /senders/{id}": s.deleteSender,

		"POST /senders/{id}/campaign_types": s.createType,
		"GET /senders/{id}/campaign_types":  s.listTypes,
		"GET /campaign_types/{id}":          s.getType,
		"PUT /campaign_types/{id}":          s.updateType,
		"DELETE /campaign_types/{id}":       s.deleteType,

		"POST /templates":           s.createTemplate2,
		"GET /templates":            s.listTemplates2,
		"GET /templates/{id}":       s.getTemplate2,
		"PUT /templates/{id}":       s.updateTemplate2,
		"DELETE /templates/{id}":    s.deleteTemplate2,
		"PUT /templates/default":    s.updateTemplate2,
		"DELETE /templates/default": s.deleteTemplate2,

		"POST /senders/{id}/campaigns": s.createCampaign,
		"GET /campaigns/{id}":          s.getCampaign,
		"GET /campaigns/{id}/status":   s.getCampaignStatus,

		"PUT /campaign_types/{id}/unsubscribers/{user}":    s.unsubscribe,
		"DELETE /campaign_types/{id}/unsubscribers/{user}": s.resubscribe,
	}
}

// link and links refer from one response to others.
type (
	link struct {
		Href string `json:"href"`
	}
	links map[string]link
)

// linksTo returns links from pairs of names and paths.
func linksTo(pairs ...string) links {
	out := links{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = link{pairs[i+1]}
	}
	return out
}

// root2 handles GET /.
func (s *Server) root2(request) (any, error) {
	return map[string]links{"_links": linksTo("self", "/", "senders", "/senders", "templates", "/templates")}, nil
}

// decodeBody2 parses a body into v and ignores unknown members.
func decodeBody2(r request, v any, message string) error {
	f, err := readFields(r)
	if errors.Is(err, errParse) || errors.Is(err, errEmpty) {
		return problemf(http.StatusBadRequest, "%s", message)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(f)
	if err != nil || inbound.JSON(raw, v) != nil || json.Unmarshal(raw, v) != nil {
		return problemf(http.StatusBadRequest, "%s", message)
	}
	return nil
}

// The error messages for malformed bodies.
const (
	badBody         = "invalid json body"
	badTemplateBody = "malformed JSON request"
)

// joinProblems returns one error with all messages, or nil.
func joinProblems(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return invalid("%s", strings.Join(wrong, ", "))
}

// notFoundError converts a lookup error into the response that the resource does not
// exist.
func notFoundError(err error, noun, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return notFound("%s with id %q could not be found", noun, inbound.Shorten(id))
	}
	if err != nil {
		return fmt.Errorf("cannot read %s %s: %w", strings.ToLower(noun), id, err)
	}
	return nil
}
