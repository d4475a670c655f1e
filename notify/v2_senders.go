package notify

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/store"
)

type senderResponse struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Links links  `json:"_links"`
}

func presentSender(s sender) senderResponse {
	path := "/senders/" + s.ID
	return senderResponse{ID: s.ID, Name: s.Name, Links: linksTo("self", path, "campaign_types", path+"/campaign_types", "campaigns", path+"/campaigns")}
}

// sender returns a sender of the calling client.
func (s *core) sender(tx *store.Tx, r request, id string) (sender, error) {
	v, err := s.buckets.senders.With(tx).Get(id)
	if err == nil && v.Client != r.who.Client {
		err = store.ErrNotFound
	}
	return v, notFoundError(err, "Sender", id)
}

// createSender handles POST /senders. For an existing name it returns that sender.
func (s *senders) createSender(r request) (any, error) {
	var body struct {
		Name string `json:"name"`
	}
	if err := decodeBody2(r, &body, badBody); err != nil {
		return nil, err
	}
	if body.Name == "" {
		return nil, invalid("missing sender name")
	}
	if err := tooLong("name", body.Name); err != nil {
		return nil, err
	}
	v := sender{ID: newID(), Client: r.who.Client, Name: body.Name}
	err := s.c.DB.Update(func(tx *store.Tx) error {
		bucket := s.buckets.senders.With(tx)
		old, err := bucket.By("name", nameKey(v.Client, v.Name))
		if err != nil {
			return fmt.Errorf("cannot look up a sender: %w", err)
		}
		if len(old) > 0 {
			v = old[0]
			return nil
		}
		return storeError(bucket.Put(v.ID, v), "sender", v.ID)
	})
	if err != nil {
		return nil, err
	}
	return reply{status: http.StatusCreated, body: presentSender(v)}, nil
}

// storeError adds to an error which record could not be stored.
func storeError(err error, noun, id string) error {
	if err != nil {
		return fmt.Errorf("cannot store %s %s: %w", noun, id, err)
	}
	return nil
}

// listSenders handles GET /senders.
func (s *senders) listSenders(r request) (any, error) {
	all, err := s.buckets.senders.By("client", r.who.Client)
	if err != nil {
		return nil, fmt.Errorf("cannot list senders: %w", err)
	}
	responses := []senderResponse{}
	for _, v := range all {
		responses = append(responses, presentSender(v))
	}
	return map[string]any{"senders": responses, "_links": linksTo("self", "/senders")}, nil
}

// getSender handles GET /senders/{id}.
func (s *senders) getSender(r request) (any, error) {
	var v sender
	err := s.c.DB.View(func(tx *store.Tx) (err error) {
		v, err = s.sender(tx, r, r.PathValue("id"))
		return err
	})
	return presentSender(v), err
}

// updateSender handles PUT /senders/{id}.
func (s *senders) updateSender(r request) (any, error) {
	var body struct {
		Name string `json:"name"`
	}
	if err := decodeBody2(r, &body, badBody); err != nil {
		return nil, err
	}
	if err := tooLong("name", body.Name); err != nil {
		return nil, err
	}
	var v sender
	err := s.c.DB.Update(func(tx *store.Tx) (err error) {
		if v, err = s.sender(tx, r, r.PathValue("id")); err != nil {
			return err
		}
		v.Name = body.Name
		err = s.buckets.senders.With(tx).Put(v.ID, v)
		if errors.Is(err, store.ErrTaken) {
			return invalid("Sender with name %q already exists", v.Name)
		}
		return storeError(err, "sender", v.ID)
	})
	return presentSender(v), err
}

// deleteSender handles DELETE /senders/{id}. It also deletes the campaign types.
func (s *senders) deleteSender(r request) (any, error) {
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		v, err := s.sender(tx, r, r.PathValue("id"))
		if err != nil {
			return err
		}
		types, err := s.buckets.types.With(tx).By("sender", v.ID)
		if err != nil {
			return fmt.Errorf("cannot list the campaign types of sender %s: %w", v.ID, err)
		}
		for _, t := range types {
			if err := s.dropType(tx, t.ID); err != nil {
				return err
			}
		}
		return storeError(s.buckets.senders.With(tx).Delete(v.ID), "sender", v.ID)
	})
}
