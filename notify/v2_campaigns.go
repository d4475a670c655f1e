package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/render"
	"github.com/dewrun/dew/store"
)

// The audiences of a campaign.
const (
	toUsers  = "users"
	toSpaces = "spaces"
	toOrgs   = "orgs"
	toEmails = "emails"
)

// endorseOrg2 is the text for organizations in version 2.
const endorseOrg2 = "You received this message because you belong to the {{.Organization}} organization."

// A campaign is stored as long as its messages. Old ones are dropped at most once per
// cleanupInterval.
const (
	campaignRetention = delivery.EndedRetention + time.Hour
	cleanupInterval   = time.Hour
)

// campaignBody is the body of a request for a campaign.
type campaignBody struct {
	SendTo   map[string][]string `json:"send_to"`
	Type     string              `json:"campaign_type_id"`
	Text     string              `json:"text"`
	HTML     string              `json:"html"`
	Subject  string              `json:"subject"`
	Template string              `json:"template_id"`
	ReplyTo  string              `json:"reply_to"`
}

type campaignResponse struct {
	ID string `json:"id"`
	campaignBody
	Links links `json:"_links"`
}

func presentCampaign(c campaign) campaignResponse {
	path := "/campaigns/" + c.ID
	return campaignResponse{
		ID: c.ID,
		campaignBody: campaignBody{
			SendTo: c.SendTo, Type: c.Type, Text: c.Text, HTML: c.HTML, Subject: c.Subject, Template: c.Template, ReplyTo: c.ReplyTo,
		},
		Links: linksTo("self", path, "template", "/templates/"+c.Template, "campaign_type", "/campaign_types/"+c.Type, "status", path+"/status"),
	}
}

// check returns the first error of a campaign.
func (b campaignBody) check() error {
	for _, audience := range slices.Sorted(maps.Keys(b.SendTo)) {
		if !slices.Contains([]string{toUsers, toSpaces, toOrgs, toEmails}, audience) {
			return invalid("%q is not a valid audience", inbound.Shorten(audience))
		}
	}
	for _, address := range b.SendTo[toEmails] {
		if bareAddress(address) != address || len(address) > maxName {
			return invalid("%q is not a valid email address", inbound.Shorten(address))
		}
	}
	for _, guid := range slices.Concat(b.SendTo[toUsers], b.SendTo[toSpaces], b.SendTo[toOrgs]) {
		if err := tooLong("send_to", guid); err != nil || guid == "" {
			return cmp.Or(err, error(invalid("%q has an empty guid", "send_to")))
		}
	}
	switch {
	case b.Type == "":
		return invalid("missing campaign_type_id")
	case b.Text == "" && b.HTML == "":
		return invalid("missing either campaign text or html")
	case b.Subject == "":
		return invalid("missing subject")
	case !validReplyTo(b.ReplyTo):
		return invalid("%q is not a valid email address", inbound.Shorten(b.ReplyTo))
	}
	return cmp.Or(tooLong("subject", b.Subject), tooLong("reply_to", b.ReplyTo))
}

// campaigns are the endpoints of campaigns.
type campaigns struct {
	*core

	mu          sync.Mutex
	lastCleanup time.Time // when old campaigns were last dropped; guarded by mu
}

// createCampaign handles POST /senders/{id}/campaigns.
func (s *campaigns) createCampaign(r request) (any, error) {
	var body campaignBody
	if err := decodeBody2(r, &body, badBody); err != nil {
		return nil, err
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	c := campaign{
		ID: newID(), Sender: r.PathValue("id"), Type: body.Type, SendTo: body.SendTo, Text: body.Text, HTML: body.HTML,
		Subject: body.Subject, Template: body.Template, ReplyTo: body.ReplyTo, Created: time.Now().UTC(),
	}
	n, err := s.campaignNotice(r, &c)
	if err != nil {
		return nil, err
	}
	batches, err := s.expand(r.Context(), body.SendTo, n)
	if err != nil {
		return nil, err
	}
	if err := s.storeCampaign(c, batches); err != nil {
		return nil, err
	}
	s.cleanUpCampaigns()
	return reply{status: http.StatusAccepted, body: presentCampaign(c)}, nil
}

// campaignNotice returns the notice for all recipients of a campaign, and sets the
// campaign's template.
func (s *campaigns) campaignNotice(r request, c *campaign) (n delivery.Notice, err error) {
	var t campaignType
	var from sender
	err = s.c.DB.View(func(tx *store.Tx) (err error) {
		if from, err = s.sender(tx, r, c.Sender); err != nil {
			return err
		}
		t, err = s.buckets.types.With(tx).Get(c.Type)
		if err == nil && t.Sender != c.Sender {
			err = store.ErrNotFound
		}
		if err := notFoundError(err, "Campaign type", c.Type); err != nil {
			return err
		}
		if t.Critical && !hasScope(r.who, ScopeCritical) {
			return problemf(http.StatusForbidden, "Scope %s is required", ScopeCritical)
		}
		if c.Template != "" {
			_, err = s.template2(tx, r, c.Template)
		}
		return err
	})
	if err != nil {
		return n, err
	}
	parts, err := render.SplitHTML(c.HTML)
	if err != nil {
		return n, invalid(`"html" is improperly formatted`)
	}
	if c.Text == "" && parts.BodyContent == "" {
		return n, invalid("missing either campaign text or html")
	}
	c.Template = cmp.Or(c.Template, t.Template, defaultTemplate)
	return delivery.Notice{
		Version: delivery.V2, Client: r.who.Client, SourceDescription: from.Name, Kind: t.ID, KindDescription: t.Description,
		Subject: render.OneLine(c.Subject), Text: c.Text, HTML: parts, ReplyTo: c.ReplyTo,
		Template: c.Template, Campaign: c.ID, Received: c.Created, Request: requestID(r.Request),
	}, nil
}

// batch is a notice for one audience, with the reason that recipients read.
type batch struct {
	notice delivery.Notice
	people []delivery.Person
}

// expand returns the recipients of all audiences. Each recipient is included once;
// spaces and organizations that do not exist have none.
func (s *campaigns) expand(ctx context.Context, to map[string][]string, n delivery.Notice) ([]batch, error) {
	x := &expansion{s: s, n: n, included: map[delivery.Person]bool{}}
	direct := make([]delivery.Person, 0, len(to[toUsers]))
	for _, guid := range to[toUsers] {
		direct = append(direct, delivery.Person{GUID: guid})
	}
	x.add(delivery.Audience{}, endorseUser, direct)
	for _, guid := range to[toSpaces] {
		a, err := s.c.Directory.InSpace(ctx, guid)
		if err := x.place(a, err, EndorseSpace); err != nil {
			return nil, placeProblem(err, guid)
		}
	}
	for _, guid := range to[toOrgs] {
		a, err := s.c.Directory.InOrg(ctx, guid, "")
		if err := x.place(a, err, endorseOrg2); err != nil {
			return nil, placeProblem(err, guid)
		}
	}
	mails := make([]delivery.Person, 0, len(to[toEmails]))
	for _, address := range to[toEmails] {
		mails = append(mails, delivery.Person{Email: address})
	}
	x.add(delivery.Audience{}, endorseAddress, mails)
	return x.batches, nil
}

// expansion collects the batches of a campaign.
type expansion struct {
	s        *campaigns
	n        delivery.Notice
	included map[delivery.Person]bool
	batches  []batch
}

// place adds the people of a space or an organization, if it exists.
func (x *expansion) place(a delivery.Audience, err error, endorsement string) error {
	if errors.Is(err, delivery.ErrNoSpace) || errors.Is(err, delivery.ErrNoOrg) {
		return nil
	}
	if err != nil {
		return err
	}
	people, err := collect(a)
	if err != nil {
		return fmt.Errorf("cannot list the recipients: %w", err)
	}
	x.add(a, endorsement, people)
	return nil
}

func (x *expansion) add(a delivery.Audience, endorsement string, people []delivery.Person) {
	added := slices.DeleteFunc(people, func(p delivery.Person) bool {
		was := x.included[p]
		x.included[p] = true
		return was
	})
	if len(added) == 0 {
		return
	}
	n := x.n
	n.Space, n.Org, n.Endorsement = a.Space, a.Org, endorsement
	x.batches = append(x.batches, batch{n, added})
}

// storeCampaign stores a campaign and all its messages, or nothing.
func (s *campaigns) storeCampaign(c campaign, batches []batch) error {
	if err := s.checkDisk(); err != nil {
		return err
	}
	return s.c.DB.Update(func(tx *store.Tx) error {
		if err := storeError(s.buckets.campaigns.With(tx).Put(c.ID, c), "campaign", c.ID); err != nil {
			return err
		}
		created := campaignTime{ID: c.ID, Created: c.Created}
		if err := storeError(s.buckets.campaignTimes.With(tx).Put(delivery.TimeKey(c.Created)+"/"+c.ID, created), "campaign", c.ID); err != nil {
			return err
		}
		for _, b := range batches {
			if _, err := s.c.Queue.EnqueueIn(tx, b.notice, b.people); err != nil {
				return err
			}
		}
		return nil
	})
}

// cleanUpCampaigns drops campaigns whose messages are dropped. If it fails, a later
// campaign repeats it.
func (s *campaigns) cleanUpCampaigns() {
	now := time.Now()
	s.mu.Lock()
	due := now.Sub(s.lastCleanup) >= cleanupInterval
	if due {
		s.lastCleanup = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	if err := s.deleteCampaigns(now.Add(-campaignRetention)); err != nil {
		s.log.Warn("cannot delete old campaigns", "err", err)
	}
}

func (s *campaigns) deleteCampaigns(before time.Time) error {
	all, err := s.buckets.campaignTimes.All()
	if err != nil {
		return fmt.Errorf("cannot list campaigns: %w", err)
	}
	for _, created := range all {
		if created.Created.After(before) {
			return nil
		}
		err := s.c.DB.Update(func(tx *store.Tx) error {
			deleted, err := s.c.Queue.DeleteCampaign(tx, created.ID)
			if err != nil || !deleted {
				return err
			}
			return errors.Join(s.buckets.campaigns.With(tx).Delete(created.ID),
				s.buckets.campaignTimes.With(tx).Delete(delivery.TimeKey(created.Created)+"/"+created.ID))
		})
		if err != nil {
			return fmt.Errorf("cannot delete campaign %s: %w", created.ID, err)
		}
	}
	return nil
}

// campaign returns a campaign of one of the caller's senders.
func (s *campaigns) campaign(r request) (c campaign, err error) {
	id := r.PathValue("id")
	err = s.c.DB.View(func(tx *store.Tx) error {
		c, err = s.buckets.campaigns.With(tx).Get(id)
		if err == nil {
			_, err = s.sender(tx, r, c.Sender)
		}
		if p, ok := errors.AsType[*problem](err); ok && p.status == http.StatusNotFound {
			err = store.ErrNotFound
		}
		return notFoundError(err, "Campaign", id)
	})
	return c, err
}

// getCampaign handles GET /campaigns/{id}.
func (s *campaigns) getCampaign(r request) (any, error) {
	c, err := s.campaign(r)
	return presentCampaign(c), err
}

type statusResponse struct {
	ID            string     `json:"id"`
	Status        string     `json:"status"`
	Total         int        `json:"total_messages"`
	Sent          int        `json:"sent_messages"`
	Retry         int        `json:"retry_messages"`
	Failed        int        `json:"failed_messages"`
	Queued        int        `json:"queued_messages"`
	Undeliverable int        `json:"undeliverable_messages"`
	Started       time.Time  `json:"start_time"`
	Completed     *time.Time `json:"completed_time"`
	Links         links      `json:"_links"`
}

// getCampaignStatus handles GET /campaigns/{id}/status.
func (s *campaigns) getCampaignStatus(r request) (any, error) {
	c, err := s.campaign(r)
	if err != nil {
		return nil, err
	}
	count, err := s.c.Queue.Campaign(c.ID)
	if err != nil {
		return nil, err
	}
	path := "/campaigns/" + c.ID
	out := statusResponse{
		ID: c.ID, Status: "sending", Total: count.Total, Sent: count.Delivered, Retry: count.Retry, Failed: count.Failed,
		Queued: count.Queued, Undeliverable: count.Undeliverable, Started: c.Created,
		Links: linksTo("self", path+"/status", "campaign", path),
	}
	if count.Waiting() == 0 {
		// A campaign without recipients is completed at once.
		ended := cmp.Or(count.Ended, c.Created)
		out.Status, out.Completed = "completed", &ended
	}
	return out, nil
}
