package api

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/services"
)

// A deletion waits for a running operation of a service instance, and then deletes the
// instance.
func TestDeletionWaitsForRunningRequests(t *testing.T) {
	w := newTestServer(t) // not parallel, see waitsForBroker
	db := w.makeService("db")
	w.want(202, "PATCH", "/v3/service_instances/"+db.GUID, `{"parameters":{"hold":true}}`, nil)
	deletion := w.want(202, "DELETE", "/v3/spaces/"+w.space.GUID, "", nil)
	waitsForBroker(t)
	w.release()
	w.complete(deletion)
	if _, err := w.c.Services.Instance(db.GUID); !errors.Is(err, services.ErrNotFound) {
		t.Errorf("the service is left: %v", err)
	}
	if requests := w.broker.requestLog(); !slices.Contains(requests, "delete instance db") {
		t.Errorf("the broker was asked %v", requests)
	}
}

// The URL of a route service can contain a secret that not all members of the space can
// read.
func TestRouteBindingHidesSecrets(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	b := services.Binding{GUID: "b", Type: services.RouteBinding, RouteService: "https://u:" + secretPassword + "@front.example.com/x?key=" + secretPassword}
	if got := w.s.market.PresentRouteBinding(b).RouteServiceURL; strings.Contains(got, secretPassword) || !strings.Contains(got, "front.example.com/x") {
		t.Errorf("address = %s", got)
	}
}
