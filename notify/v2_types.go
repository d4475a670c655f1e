package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
)

type typeResponse struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Critical    bool   `json:"critical"`
	Template    string `json:"template_id"`
	Links       links  `json:"_links"`
}

func presentType(t campaignType) typeResponse {
	return typeResponse{
		ID: t.ID, Name: t.Name, Description: t.Description, Critical: t.Critical, Template: t.Template,
		Links: linksTo("self", "/campaign_types/"+t.ID),
	}
}

// typeBody is the body of a request for a campaign type; nil: not set.
type typeBody struct {
	Name        *string `json:"name"`
	Description *string `json:"description"`
	Critical    *bool   `json:"critical"`
	Template    *string `json:"template_id"`
}

// set applies the fields of the body.
func (b typeBody) set(t *campaignType) {
	setIf(&t.Name, b.Name)
	setIf(&t.Description, b.Description)
	setIf(&t.Critical, b.Critical)
	setIf(&t.Template, b.Template)
}

func setIf[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// campaignType returns a campaign type of one of the caller's senders.
func (s *core) campaignType(tx *store.Tx, r request, id string) (campaignType, error) {
	t, err := s.buckets.types.With(tx).Get(id)
	if err := notFoundError(err, "Campaign type", id); err != nil {
		return t, err
	}
	_, err = s.sender(tx, r, t.Sender)
	return t, err
}

// createType handles POST /senders/{id}/campaign_types. For an existing name it returns
// that type unchanged.
func (s *campaignTypes) createType(r request) (any, error) {
	var body typeBody
	if err := decodeBody2(r, &body, badBody); err != nil {
		return nil, err
	}
	t := campaignType{ID: newID(), Sender: r.PathValue("id")}
	body.set(&t)
	var wrong []string
	if t.Name == "" {
		wrong = append(wrong, "missing campaign type name")
	}
	if t.Description == "" {
		wrong = append(wrong, "missing campaign type description")
	}
	if err := cmp.Or(joinProblems(wrong), tooLong("name", t.Name), tooLong("description", t.Description)); err != nil {
		return nil, err
	}
	if t.Critical && !hasScope(r.who, ScopeCritical) {
		return nil, problemf(http.StatusForbidden, "You do not have permission to create critical campaign types")
	}
	if err := s.c.DB.Update(func(tx *store.Tx) error { return s.addType(tx, r, &t) }); err != nil {
		return nil, err
	}
	return reply{status: http.StatusCreated, body: presentType(t)}, nil
}

func (s *campaignTypes) addType(tx *store.Tx, r request, t *campaignType) error {
	if _, err := s.sender(tx, r, t.Sender); err != nil {
		return err
	}
	bucket := s.buckets.types.With(tx)
	old, err := bucket.By("name", nameKey(t.Sender, t.Name))
	if err != nil {
		return fmt.Errorf("cannot look up a campaign type: %w", err)
	}
	if len(old) > 0 {
		*t = old[0]
		return nil
	}
	if t.Template != "" {
		if _, err := s.template2(tx, r, t.Template); err != nil {
			return err
		}
	}
	return storeError(bucket.Put(t.ID, *t), "campaign type", t.ID)
}

// listTypes handles GET /senders/{id}/campaign_types.
func (s *campaignTypes) listTypes(r request) (any, error) {
	id := r.PathValue("id")
	responses := []typeResponse{}
	err := s.c.DB.View(func(tx *store.Tx) error {
		if _, err := s.sender(tx, r, id); err != nil {
			return err
		}
		types, err := s.buckets.types.With(tx).By("sender", id)
		if err != nil {
			return fmt.Errorf("cannot list the campaign types of sender %s: %w", id, err)
		}
		for _, t := range types {
			responses = append(responses, presentType(t))
		}
		return nil
	})
	path := "/senders/" + id
	return map[string]any{"campaign_types": responses, "_links": linksTo("self", path+"/campaign_types", "sender", path)}, err
}

// getType handles GET /campaign_types/{id}.
func (s *campaignTypes) getType(r request) (any, error) {
	var t campaignType
	err := s.c.DB.View(func(tx *store.Tx) (err error) {
		t, err = s.campaignType(tx, r, r.PathValue("id"))
		return err
	})
	return presentType(t), err
}

// updateType handles PUT /campaign_types/{id}. Missing fields do not change.
func (s *campaignTypes) updateType(r request) (any, error) {
	var body typeBody
	if err := decodeBody2(r, &body, badBody); err != nil {
		return nil, err
	}
	var wrong []string
	if body.Name != nil && *body.Name == "" {
		wrong = append(wrong, "name cannot be blank")
	}
	if body.Description != nil && *body.Description == "" {
		wrong = append(wrong, "description cannot be blank")
	}
	if err := joinProblems(wrong); err != nil {
		return nil, err
	}
	var t campaignType
	err := s.c.DB.Update(func(tx *store.Tx) (err error) {
		t, err = s.changeType(tx, r, body)
		return err
	})
	return presentType(t), err
}

func (s *campaignTypes) changeType(tx *store.Tx, r request, body typeBody) (campaignType, error) {
	t, err := s.campaignType(tx, r, r.PathValue("id"))
	if err != nil {
		return t, err
	}
	body.set(&t)
	if err := cmp.Or(tooLong("name", t.Name), tooLong("description", t.Description)); err != nil {
		return t, err
	}
	if t.Critical && !hasScope(r.who, ScopeCritical) {
		return t, problemf(http.StatusForbidden, "Forbidden: cannot update campaign type with critical flag set to true")
	}
	if body.Template != nil && t.Template != "" {
		if _, err := s.template2(tx, r, t.Template); err != nil {
			return t, err
		}
	}
	err = s.buckets.types.With(tx).Put(t.ID, t)
	if errors.Is(err, store.ErrTaken) {
		return t, invalid("Campaign type with name %q already exists", t.Name)
	}
	return t, storeError(err, "campaign type", t.ID)
}

// deleteType handles DELETE /campaign_types/{id}.
func (s *campaignTypes) deleteType(r request) (any, error) {
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		t, err := s.campaignType(tx, r, r.PathValue("id"))
		if err != nil {
			return err
		}
		return s.dropType(tx, t.ID)
	})
}

// dropType deletes a type and its unsubscriptions.
func (s *core) dropType(tx *store.Tx, id string) error {
	bucket := s.buckets.unsubscribers.With(tx)
	gone, err := bucket.Prefix(keyOf(id, ""))
	if err != nil {
		return fmt.Errorf("cannot list the unsubscribed users of campaign type %s: %w", id, err)
	}
	for _, u := range gone {
		if err := bucket.Delete(keyOf(u.Kind, u.User)); err != nil {
			return fmt.Errorf("cannot delete an unsubscription from campaign type %s: %w", id, err)
		}
	}
	return storeError(s.buckets.types.With(tx).Delete(id), "campaign type", id)
}

// unsubscribe handles PUT /campaign_types/{id}/unsubscribers/{user}.
func (s *campaignTypes) unsubscribe(r request) (any, error) {
	id, user := r.PathValue("id"), r.PathValue("user")
	if err := s.checkUserExists(r.Context(), user); err != nil {
		return nil, err
	}
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		t, err := s.buckets.types.With(tx).Get(id)
		if err := notFoundError(err, "Campaign type", id); err != nil {
			return err
		}
		if t.Critical {
			return problemf(http.StatusForbidden, "Campaign type %q cannot be unsubscribed from", t.ID)
		}
		u := unsubscription{User: user, Kind: id}
		return storeError(s.buckets.unsubscribers.With(tx).Put(keyOf(id, user), u), "the unsubscription of user", user)
	})
}

// resubscribe handles DELETE /campaign_types/{id}/unsubscribers/{user}.
func (s *campaignTypes) resubscribe(r request) (any, error) {
	id, user := r.PathValue("id"), r.PathValue("user")
	if err := s.checkUserExists(r.Context(), user); err != nil {
		return nil, err
	}
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		_, err := s.buckets.types.With(tx).Get(id)
		if err := notFoundError(err, "Campaign type", id); err != nil {
			return err
		}
		return storeError(s.buckets.unsubscribers.With(tx).Delete(keyOf(id, user)), "the unsubscription of user", user)
	})
}

// checkUserExists refuses users that do not exist.
func (s *core) checkUserExists(ctx context.Context, user string) error {
	_, err := s.c.Directory.User(ctx, user)
	if errors.Is(err, delivery.ErrNoUser) {
		return notFound("User %q not found", inbound.Shorten(user))
	}
	if err != nil {
		return fmt.Errorf("cannot get user %s: %w", user, err)
	}
	return nil
}

// checkSubscribedV2 is like checkSubscribed, for campaigns. A user who wants only
// critical notifications gets only critical campaigns.
func (s *composer) checkSubscribedV2(tx *store.Tx, m delivery.Message, n delivery.Notice) error {
	t, err := ignoreNotFound(s.buckets.types.With(tx).Get(n.Kind))
	if err != nil {
		return fmt.Errorf("cannot read campaign type %s: %w", n.Kind, err)
	}
	if t.Critical || m.User == "" {
		return nil
	}
	onlyCritical, err := s.wantsOnlyCritical(tx, m.User)
	if err != nil {
		return err
	}
	unsubscribed, err := has(s.buckets.unsubscribers.With(tx), keyOf(n.Kind, m.User))
	if err != nil {
		return err
	}
	if onlyCritical || unsubscribed {
		return delivery.ErrUnsubscribed
	}
	return nil
}
