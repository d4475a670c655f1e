package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/render"
)

// The reasons why a recipient got a message. These are templates.
const (
	endorseUser = "This message was sent directly to you."
	// EndorseSpace is for the users of a space.
	EndorseSpace    = `You received this message because you belong to the "{{.Space}}" space in the "{{.Organization}}" organization.`
	endorseOrg      = `You received this message because you belong to the "{{.Organization}}" organization.`
	endorseRole     = `You received this message because you are an {{.OrganizationRole}} in the "{{.Organization}}" organization.`
	endorseEveryone = "This message was sent to everyone."
	endorseScope    = "You received this message because you have the {{.Scope}} scope."
	endorseAddress  = "This message was sent directly to your email address."
)

const (
	noSubject      = "[no subject]"
	unknownRequest = "UNKNOWN"
	noParts        = `"text" or "html" fields must be supplied`
)

// The roles of an organization that requests can name.
var roles = []string{delivery.RoleManager, delivery.RoleAuditor, delivery.RoleBilling}

// sendRequest is the body of a request to send a notification.
type sendRequest struct {
	kind, subject, text, replyTo, to, role string
	html                                   delivery.HTML
}

// parseSendRequest parses the body of a request to send. An empty body gives an empty
// sendRequest.
func parseSendRequest(r request) (l sendRequest, err error) {
	f, err := readFields(r)
	if err != nil && !errors.Is(err, errEmpty) {
		return l, err
	}
	var page string
	err = f.decode(map[string]any{
		"kind_id": &l.kind, "subject": &l.subject, "text": &l.text, "html": &page, "reply_to": &l.replyTo, "to": &l.to, "role": &l.role,
	})
	if err != nil {
		return l, err
	}
	if l.html, err = render.SplitHTML(page); err != nil {
		return l, invalid(`"html" is improperly formatted`)
	}
	l.subject = cmp.Or(render.OneLine(l.subject), noSubject)
	return l, nil
}

// checkForPeople returns the errors of a request to users.
func (l sendRequest) checkForPeople() error {
	var wrong []string
	switch {
	case l.kind == "":
		wrong = append(wrong, `"kind_id" is a required field`)
	case !kindIDPattern.MatchString(l.kind):
		wrong = append(wrong, `"kind_id" is improperly formatted`)
	}
	wrong = append(wrong, l.problems()...)
	if l.role != "" && !slices.Contains(roles, l.role) {
		wrong = append(wrong, `"role" must be "OrgManager", "OrgAuditor", "BillingManager" or unset`)
	}
	return l.check(wrong)
}

// checkForAddress returns the errors of a request to an address.
func (l sendRequest) checkForAddress() error {
	var wrong []string
	switch {
	case l.to == "":
		wrong = append(wrong, `"to" is a required field`)
	case bareAddress(l.to) == "":
		wrong = append(wrong, `"to" is improperly formatted`+": it must be exactly one address")
	}
	return l.check(append(wrong, l.problems()...))
}

// problems returns the errors that any request can have.
func (l sendRequest) problems() (wrong []string) {
	if l.text == "" && l.html.BodyContent == "" {
		wrong = append(wrong, noParts)
	}
	if !validReplyTo(l.replyTo) {
		wrong = append(wrong, `"reply_to" is improperly formatted`)
	}
	return wrong
}

func (l sendRequest) check(wrong []string) error {
	if len(wrong) > 0 {
		return invalid("%s", strings.Join(wrong, ","))
	}
	return cmp.Or(tooLong("kind_id", l.kind), tooLong("subject", l.subject), tooLong("to", l.to), tooLong("reply_to", l.replyTo))
}

// addressPattern matches a mail address without quotes.
var addressPattern = regexp.MustCompile(`^[^\s<>@,;:"'()\[\]\\]+@[^\s<>@,;:"'()\[\]\\]+$`)

// bareAddress returns the address of a text that is exactly one address, such as a@b or
// `Name <a@b>`, or "". It returns "" for a text with control characters, which could add
// header lines.
func bareAddress(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	if a := strings.TrimSpace(s); addressPattern.MatchString(a) {
		return a
	}
	a, err := mail.ParseAddress(s)
	if err != nil || !addressPattern.MatchString(a.Address) {
		return ""
	}
	return a.Address
}

// validReplyTo reports whether s is empty or a valid reply address.
func validReplyTo(s string) bool {
	if s == "" {
		return true
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return false
	}
	_, err := mail.ParseAddress(s)
	return err == nil
}

// notice returns the notice of a request. The kind must be registered, and a critical
// kind requires the scope for it.
func (s *sending) notice(r request, l sendRequest) (delivery.Notice, error) {
	n := delivery.Notice{
		Version: delivery.V1, Client: r.who.Client, Kind: l.kind, Subject: l.subject, Text: l.text, HTML: l.html, ReplyTo: l.replyTo,
		Received: time.Now().UTC(), Request: requestID(r.Request),
	}
	if l.kind != "" {
		k, err := s.kind(nil, n.Client, l.kind)
		if err != nil {
			return n, err
		}
		if k.Critical && !hasScope(r.who, ScopeCritical) {
			return n, invalid("Insufficient privileges to send notification %s", k.ID)
		}
		n.KindDescription = k.Description
	}
	c, err := ignoreNotFound(s.buckets.clients.Get(keyOf(n.Client)))
	if err != nil {
		return n, fmt.Errorf("cannot read client %s: %w", n.Client, err)
	}
	n.SourceDescription = c.Name
	return n, nil
}

// requestID returns the sender's id of the request.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Vcap-Request-Id")
	if len(id) > maxRequestID {
		id = strings.ToValidUTF8(id[:maxRequestID], "")
	}
	return cmp.Or(id, unknownRequest)
}

// audience returns the recipients of a notice, and adds to it who they are.
type audience func(ctx context.Context, l sendRequest, n *delivery.Notice) (delivery.Audience, error)

// sendToPeople handles all requests to send, except those to an address.
func (s *sending) sendToPeople(r request, find audience) (any, error) {
	l, err := parseSendRequest(r)
	if err != nil {
		return nil, err
	}
	if err := l.checkForPeople(); err != nil {
		return nil, err
	}
	n, err := s.notice(r, l)
	if err != nil {
		return nil, err
	}
	who, err := find(r.Context(), l, &n)
	if err != nil {
		return nil, err
	}
	people, err := collect(who)
	if err != nil {
		return nil, fmt.Errorf("cannot list the recipients: %w", err)
	}
	return s.enqueue(r.Context(), n, people)
}

// collect returns all people of an audience. Their addresses are looked up again at
// delivery, because they can change.
func collect(a delivery.Audience) (people []delivery.Person, err error) {
	for p, err := range a.People {
		if err != nil {
			return nil, err
		}
		if p.GUID != "" {
			p.Email = ""
		}
		people = append(people, p)
	}
	return people, nil
}

// sent is the JSON format of a queued message.
type sent struct {
	Status    delivery.Status `json:"status"`
	Recipient string          `json:"recipient"`
	ID        string          `json:"notification_id"`
	Request   string          `json:"vcap_request_id"`
}

// checkDisk refuses messages while the disk is nearly full, because queued messages
// must be stored.
func (s *core) checkDisk() error {
	if s.c.CheckDisk == nil {
		return nil
	}
	if err := s.c.CheckDisk(); err != nil {
		s.c.Logger.Warn("messages are refused because the disk is nearly full", "err", err)
		return problemf(http.StatusServiceUnavailable, "The disk is too full to store more messages. Try again later")
	}
	return nil
}

func (s *sending) enqueue(ctx context.Context, n delivery.Notice, people []delivery.Person) (any, error) {
	if err := s.checkDisk(); err != nil {
		return nil, err
	}
	ms, err := s.c.Queue.Enqueue(ctx, n, people)
	if err != nil {
		return nil, err
	}
	var out []sent // no recipients: null
	for _, m := range ms {
		out = append(out, sent{Status: m.Status, Recipient: m.Recipient(), ID: m.ID, Request: n.Request})
	}
	return reply{status: http.StatusOK, body: out}, nil
}

// sendToUser handles POST /users/{guid}. Whether the user exists is checked at
// delivery.
func (s *sending) sendToUser(r request) (any, error) {
	guid := r.PathValue("guid")
	if err := tooLong("guid", guid); err != nil {
		return nil, err
	}
	return s.sendToPeople(r, func(_ context.Context, _ sendRequest, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement = endorseUser
		return delivery.Audience{People: func(yield func(delivery.Person, error) bool) { yield(delivery.Person{GUID: guid}, nil) }}, nil
	})
}

// sendToSpace handles POST /spaces/{guid}.
func (s *sending) sendToSpace(r request) (any, error) {
	guid := r.PathValue("guid")
	return s.sendToPeople(r, func(ctx context.Context, _ sendRequest, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement = EndorseSpace
		a, err := s.c.Directory.InSpace(ctx, guid)
		n.Space, n.Org = a.Space, a.Org
		return a, placeProblem(err, guid)
	})
}

// sendToOrg handles POST /organizations/{guid}.
func (s *sending) sendToOrg(r request) (any, error) {
	guid := r.PathValue("guid")
	return s.sendToPeople(r, func(ctx context.Context, l sendRequest, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement, n.Role = endorseOrg, l.role
		if l.role != "" {
			n.Endorsement = endorseRole
		}
		a, err := s.c.Directory.InOrg(ctx, guid, l.role)
		n.Org = a.Org
		return a, placeProblem(err, guid)
	})
}

// placeProblem returns the error if a space or organization does not exist, or cannot
// be queried.
func placeProblem(err error, guid string) error {
	switch {
	case errors.Is(err, delivery.ErrNoSpace):
		return notFound("CloudController Failure: Space %q could not be found", inbound.Shorten(guid))
	case errors.Is(err, delivery.ErrNoOrg):
		return notFound("CloudController Failure: Organization %q could not be found", inbound.Shorten(guid))
	case errors.Is(err, delivery.ErrPlatform):
		return problemf(http.StatusBadGateway, "CloudController Failure: %s", err)
	}
	return err
}

// sendToEveryone handles POST /everyone.
func (s *sending) sendToEveryone(r request) (any, error) {
	return s.sendToPeople(r, func(ctx context.Context, _ sendRequest, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement = endorseEveryone
		return s.c.Directory.Everyone(ctx)
	})
}

// sendToScope handles POST /uaa_scopes/{scope}. It refuses default scopes, which all
// users have.
func (s *sending) sendToScope(r request) (any, error) {
	scope := r.PathValue("scope")
	return s.sendToPeople(r, func(ctx context.Context, _ sendRequest, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement, n.Scope = endorseScope, scope
		if slices.Contains(s.c.DefaultScopes, scope) {
			return delivery.Audience{}, problemf(http.StatusNotAcceptable, "You cannot send a notification to a default scope")
		}
		a, err := s.c.Directory.WithScope(ctx, scope)
		if errors.Is(err, delivery.ErrNoScope) {
			return delivery.Audience{People: func(func(delivery.Person, error) bool) {}}, nil
		}
		return a, err
	})
}

// sendToAddress handles POST /emails, which needs no kind.
func (s *sending) sendToAddress(r request) (any, error) {
	l, err := parseSendRequest(r)
	if err != nil {
		return nil, err
	}
	if err := l.checkForAddress(); err != nil {
		return nil, err
	}
	n, err := s.notice(r, l)
	if err != nil {
		return nil, err
	}
	n.Endorsement = endorseAddress
	return s.enqueue(r.Context(), n, []delivery.Person{{Email: bareAddress(l.to)}})
}

// getMessage handles GET /messages/{id}.
func (s *sending) getMessage(r request) (any, error) {
	id := r.PathValue("id")
	m, err := s.c.Queue.Message(id)
	if errors.Is(err, delivery.ErrNoMessage) {
		return nil, notFound("Message with ID %q could not be found", inbound.Shorten(id))
	}
	if err != nil {
		return nil, err
	}
	status := messageStatus{Status: m.Status}
	if status.Status == delivery.Retry {
		status.Status = statusRetrying
	}
	n, err := s.c.Queue.Notice(m.Notice)
	if err != nil {
		return nil, err
	}
	if n.Client != r.who.Client && !isAdmin(r.who) {
		return status, nil
	}
	status.Attempts, status.Answer = m.Attempts, m.Problem
	if m.Status == delivery.Retry || m.Attempts > 0 && !m.Status.Ended() {
		next := m.Due.UTC()
		status.Next = &next
	}
	return status, nil
}

// debugMetrics handles GET /debug/metrics, with the names of the original service.
func (s *sending) debugMetrics(request) (any, error) {
	type count struct {
		Count int64 `json:"count"`
	}
	type value struct {
		Value int `json:"value"`
	}
	queued, retrying, err := s.c.Queue.Lengths()
	if err != nil {
		return nil, err
	}
	out := map[string]any{"notifications.queue.length": value{queued + retrying}}
	if s.c.Metrics != nil {
		t := s.c.Metrics.Totals()
		out["notifications.worker.delivered"] = count{t.Delivered}
		out["notifications.worker.unsubscribed"] = count{t.Unsubscribed}
		out["notifications.worker.retry"] = count{t.Retries}
		out["notifications.worker.failed"] = count{t.Failed}
	}
	return out, nil
}

// statusRetrying is the status of a message after a failed attempt, before the next.
const statusRetrying delivery.Status = "retrying"

// messageStatus is the JSON format of the state of a message. Only its sender and
// administrators see more than the status, because answers of mail servers can contain
// addresses.
type messageStatus struct {
	Status   delivery.Status `json:"status"`
	Attempts int             `json:"failed_attempts,omitempty"`
	Next     *time.Time      `json:"next_attempt,omitempty"`
	Answer   string          `json:"last_answer,omitempty"` // why it was not delivered
}

var (
	_ delivery.Composer = (*Server)(nil)
	_ Verifier          = (*auth.Server)(nil)
)
