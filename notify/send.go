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

// What recipients read about why they got a message. These are templates.
const (
	endorseUser     = "This message was sent directly to you."
	endorseSpace    = `You received this message because you belong to the "{{.Space}}" space in the "{{.Organization}}" organization.`
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

// wanted roles of an organization, as requests name them.
var roles = []string{delivery.RoleManager, delivery.RoleAuditor, delivery.RoleBilling}

// letter is the body of a request to send.
type letter struct {
	kind, subject, text, replyTo, to, role string
	html                                   delivery.HTML
}

// readLetter reads the body of a request to send; none at all is an empty one.
func readLetter(r request) (l letter, err error) {
	f, err := readFields(r)
	if err != nil && !errors.Is(err, errEmpty) {
		return l, err
	}
	var page string
	err = f.into(map[string]any{
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

// checkForPeople says what is wrong with a letter to users.
func (l letter) checkForPeople() error {
	var wrong []string
	switch {
	case l.kind == "":
		wrong = append(wrong, `"kind_id" is a required field`)
	case !formOfID.MatchString(l.kind):
		wrong = append(wrong, `"kind_id" is improperly formatted`)
	}
	wrong = append(wrong, l.flaws()...)
	if l.role != "" && !slices.Contains(roles, l.role) {
		wrong = append(wrong, `"role" must be "OrgManager", "OrgAuditor", "BillingManager" or unset`)
	}
	return l.verdict(wrong)
}

// checkForAddress says what is wrong with a letter to an address.
func (l letter) checkForAddress() error {
	var wrong []string
	switch {
	case l.to == "":
		wrong = append(wrong, `"to" is a required field`)
	case bareAddress(l.to) == "":
		wrong = append(wrong, `"to" is improperly formatted`)
	}
	return l.verdict(append(wrong, l.flaws()...))
}

// flaws are those that every letter may have.
func (l letter) flaws() (wrong []string) {
	if l.text == "" && l.html.BodyContent == "" {
		wrong = append(wrong, noParts)
	}
	if !goodReply(l.replyTo) {
		wrong = append(wrong, `"reply_to" is improperly formatted`)
	}
	return wrong
}

func (l letter) verdict(wrong []string) error {
	if len(wrong) > 0 {
		return invalid("%s", strings.Join(wrong, ","))
	}
	return cmp.Or(tooLong("kind_id", l.kind), tooLong("subject", l.subject), tooLong("to", l.to), tooLong("reply_to", l.replyTo))
}

// addressPiece is what looks like an address somewhere in a text.
var addressPiece = regexp.MustCompile(`[^\s<>@,;:"'()\[\]\\]+@[^\s<>@,;:"'()\[\]\\]+`)

// bareAddress finds the address in a text such as `Name <a@b>`, or "". A text that
// would be more than one line of a header has none.
func bareAddress(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	if _, rest, ok := strings.Cut(s, "<"); ok {
		inside, _, closed := strings.Cut(rest, ">")
		if !closed {
			return ""
		}
		s = inside
	}
	return addressPiece.FindString(s)
}

// goodReply tells whether answers can go to an address; none is fine, too.
func goodReply(s string) bool {
	if s == "" {
		return true
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return false
	}
	_, err := mail.ParseAddress(s)
	return err == nil
}

// notice is what a letter becomes: the kind must be registered, and what is
// critical needs its scope.
func (s *sending) notice(r request, l letter) (delivery.Notice, error) {
	n := delivery.Notice{
		Version: delivery.V1, Client: r.who.Client, Kind: l.kind, Subject: l.subject, Text: l.text, HTML: l.html, ReplyTo: l.replyTo,
		Received: time.Now().UTC(), Request: requestID(r.Request),
	}
	if l.kind != "" {
		k, err := s.kind(nil, n.Client, l.kind)
		if err != nil {
			return n, err
		}
		if k.Critical && !holds(r.who, ScopeCritical) {
			return n, invalid("Insufficient privileges to send notification %s", k.ID)
		}
		n.KindDescription = k.Description
	}
	c, err := orNone(s.shelves.clients.Get(keyOf(n.Client)))
	if err != nil {
		return n, fmt.Errorf("cannot read client %s: %w", n.Client, err)
	}
	n.SourceDescription = c.Name
	return n, nil
}

// requestID is how the sender calls the request.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Vcap-Request-Id")
	if len(id) > maxRequestID {
		id = strings.ToValidUTF8(id[:maxRequestID], "")
	}
	return cmp.Or(id, unknownRequest)
}

// audience finds the people of a notice, and says in it who they are.
type audience func(ctx context.Context, l letter, n *delivery.Notice) (delivery.Audience, error)

// sendToPeople answers all requests to send but those to an address.
func (s *sending) sendToPeople(r request, find audience) (any, error) {
	l, err := readLetter(r)
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

// collect reads all people of an audience. Their addresses are asked for again at
// delivery, when they may be others.
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

// sent is how a queued message is shown.
type sent struct {
	Status    delivery.Status `json:"status"`
	Recipient string          `json:"recipient"`
	ID        string          `json:"notification_id"`
	Request   string          `json:"vcap_request_id"`
}

// room refuses messages while the disk is nearly full: what is queued must be kept.
func (s *core) room() error {
	if s.c.Space == nil {
		return nil
	}
	if err := s.c.Space(); err != nil {
		s.c.Logger.Warn("messages are refused", "err", err)
		return problemf(http.StatusServiceUnavailable, "There is no room for more messages: try again later")
	}
	return nil
}

func (s *sending) enqueue(ctx context.Context, n delivery.Notice, people []delivery.Person) (any, error) {
	if err := s.room(); err != nil {
		return nil, err
	}
	ms, err := s.c.Queue.Enqueue(ctx, n, people)
	if err != nil {
		return nil, err
	}
	var out []sent // nobody: null
	for _, m := range ms {
		out = append(out, sent{Status: m.Status, Recipient: m.Recipient(), ID: m.ID, Request: n.Request})
	}
	return reply{status: http.StatusOK, body: out}, nil
}

// sendToUser is POST /users/{guid}. Whether there is such a user shows at
// delivery.
func (s *sending) sendToUser(r request) (any, error) {
	guid := r.PathValue("guid")
	if err := tooLong("guid", guid); err != nil {
		return nil, err
	}
	return s.sendToPeople(r, func(_ context.Context, _ letter, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement = endorseUser
		return delivery.Audience{People: func(yield func(delivery.Person, error) bool) { yield(delivery.Person{GUID: guid}, nil) }}, nil
	})
}

// sendToSpace is POST /spaces/{guid}.
func (s *sending) sendToSpace(r request) (any, error) {
	guid := r.PathValue("guid")
	return s.sendToPeople(r, func(ctx context.Context, _ letter, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement = endorseSpace
		a, err := s.c.Directory.InSpace(ctx, guid)
		n.Space, n.Org = a.Space, a.Org
		return a, placeProblem(err, guid)
	})
}

// sendToOrg is POST /organizations/{guid}.
func (s *sending) sendToOrg(r request) (any, error) {
	guid := r.PathValue("guid")
	return s.sendToPeople(r, func(ctx context.Context, l letter, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement, n.Role = endorseOrg, l.role
		if l.role != "" {
			n.Endorsement = endorseRole
		}
		a, err := s.c.Directory.InOrg(ctx, guid, l.role)
		n.Org = a.Org
		return a, placeProblem(err, guid)
	})
}

// placeProblem is the answer when a place is not there, or cannot be asked for.
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

// sendToEveryone is POST /everyone.
func (s *sending) sendToEveryone(r request) (any, error) {
	return s.sendToPeople(r, func(ctx context.Context, _ letter, n *delivery.Notice) (delivery.Audience, error) {
		n.Endorsement = endorseEveryone
		return s.c.Directory.Everyone(ctx)
	})
}

// sendToScope is POST /uaa_scopes/{scope}. What everybody has is no way to tell
// people apart.
func (s *sending) sendToScope(r request) (any, error) {
	scope := r.PathValue("scope")
	return s.sendToPeople(r, func(ctx context.Context, _ letter, n *delivery.Notice) (delivery.Audience, error) {
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

// sendToAddress is POST /emails, for which no kind is needed.
func (s *sending) sendToAddress(r request) (any, error) {
	l, err := readLetter(r)
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

// getMessage is GET /messages/{id}.
func (s *sending) getMessage(r request) (any, error) {
	id := r.PathValue("id")
	m, err := s.c.Queue.Message(id)
	if errors.Is(err, delivery.ErrNoMessage) {
		return nil, notFound("Message with ID %q could not be found", inbound.Shorten(id))
	}
	if err != nil {
		return nil, err
	}
	status := m.Status
	if status == delivery.Retry {
		status = delivery.Failed // this dialect knows no other word for it
	}
	return map[string]delivery.Status{"status": status}, nil
}

var (
	_ delivery.Composer = (*Server)(nil)
	_ Verifier          = (*auth.Server)(nil)
)
