package marketplace

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

func TestPollAfter(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		0: time.Second, 1: 1500 * time.Millisecond, 2: 2250 * time.Millisecond, 50: time.Minute, 1 << 20: time.Minute,
	} {
		if got := pollAfter(n, time.Minute); got != want {
			t.Errorf("pollAfter(%d) = %v, want %v", n, got, want)
		}
	}
}

// Whatever a broker does during a create, the record is correct. Anything that the
// broker may have created without reporting it is deleted.
func TestCreateInstance(t *testing.T) {
	t.Parallel()
	type does = servicestest.Behaviour
	invalidBody := "The service broker returned an invalid response: expected valid JSON object in body"
	for _, tt := range []struct {
		name string
		does does
		last []does // for last_operation
		plan string
		want string
		has  int // instances at the broker at the end
	}{
		{name: "at once", want: "create succeeded: ", has: 1},
		{name: "later", does: does{Async: 3}, want: "create succeeded: made", has: 1},
		{name: "much later", does: does{Async: 50}, want: "create succeeded: made", has: 1},
		{name: "later, and fails", does: does{Async: 2, Fails: true}, want: "create failed: no room", has: 1},
		{name: "refuses", does: does{NoEffect: true, Status: 400, Body: `{"description": "not today"}`}, want: "create failed: Service broker error: not today"},
		{name: "refuses and lies", does: does{Status: 400, Body: `{"description": "not today"}`}, want: "create failed: Service broker error: not today", has: 1},
		{name: "breaks", does: does{Status: 500, Body: `{"description": "oops"}`}, want: "create failed: Service broker error: oops"},
		{name: "breaks without a word", does: does{Status: 503, Body: "<html>"}, want: "create failed: The service broker returned an invalid response. Status Code: 503 Service Unavailable, Body: <html>"},
		{name: "created, garbage", does: does{Body: "<html>"}, want: "create failed: " + invalidBody},
		{name: "created, half an answer", does: does{Body: `{"dashboard_url":`}, want: "create failed: " + invalidBody},
		{name: "created, two answers", does: does{Body: `{} {}`}, want: "create failed: " + invalidBody},
		{name: "created, another shape", does: does{Body: `{"dashboard_url": 7}`}, want: "create failed: The service broker returned an invalid response: dashboard_url must not be a number"},
		{name: "ok, garbage", does: does{Status: 200, Body: "<html>"}, want: "create failed: " + invalidBody, has: 1},
		{name: "accepted, garbage", does: does{Status: 202, Body: "]"}, want: "create failed: " + invalidBody},
		{name: "accepted, endless word", does: does{Status: 202, Body: `{"operation": "` + strings.Repeat("x", 10_000+1) + `"}`}, want: "create failed: The service broker returned an invalid response: operation must have at most 10000 characters"},
		{name: "endless", does: does{Body: strings.Repeat(" ", 4<<20+1)}, want: "create failed: The service broker returned an invalid response: the response has more than 4194304 bytes"},
		{name: "another success", does: does{Status: 204, Body: "{}"}, want: "create failed: The service broker returned an invalid response. Status Code: 204 No Content, Body: {}"},
		{name: "sends elsewhere", does: does{NoEffect: true, Status: 307, Body: "{}"}, want: "create failed: The service broker returned an invalid response. Status Code: 307 Temporary Redirect, Body: {}"},
		{name: "never answers", does: does{Hang: true}, want: "create failed: The request to the service broker timed out"},
		{name: "breaks off", does: does{Drop: true}, want: "create failed: The connection to the service broker failed: unexpected EOF"},
		{name: "conflict", does: does{NoEffect: true, Status: 409, Body: "{}"}, want: "create failed: Resource conflict"},
		{name: "timed out", does: does{NoEffect: true, Status: 408, Body: "{}"}, want: "create failed: The request to the service broker timed out"},
		{name: "async required", does: does{NoEffect: true, Status: 422, Body: `{"error": "AsyncRequired"}`}, want: "create failed: This service plan requires client support for asynchronous service operations."},
		{name: "busy", does: does{NoEffect: true, Status: 422, Body: `{"error": "ConcurrencyError"}`}, want: "create failed: The service broker could not perform this operation in parallel with other running operations"},
		{name: "maintenance", does: does{NoEffect: true, Status: 422, Body: `{"error": "MaintenanceInfoConflict"}`}, want: "create failed: The service broker did not provide a reason for this conflict, please ensure the catalog is up to date and you are providing a version supported by this service plan"},
		{name: "wrong password", does: does{NoEffect: true, Status: 401}, want: "create failed: Authentication with the service broker failed. Double-check that the username and password are correct."},
		{name: "says nothing of the progress for a while", does: does{Async: 1}, last: []does{{Times: 3, NoEffect: true, Status: 500}, {Times: 1, Hang: true, NoEffect: true}, {Times: 1, NoEffect: true, Body: "?"}, {Times: 1, NoEffect: true, Body: `{"state": "well"}`}, {Times: 1, NoEffect: true, Status: 404}, {}}, want: "create succeeded: made", has: 1},
		{name: "never ready", does: does{Async: 1 << 30}, plan: "large", want: "create failed: Service Broker failed to provision within the required time."},
		{name: "never heard of it", does: does{Async: 1}, last: []does{{NoEffect: true, Status: 410}}, want: "create failed: The service broker returned an invalid response. Status Code: 410 Gone, Body: {}"},
		{name: "does not understand the question", does: does{Async: 1}, last: []does{{NoEffect: true, Status: 400, Body: `{"description": "what?"}`}}, want: "create failed: Service broker error: what?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.broker.On(servicestest.Provision, tt.does)
				if tt.last != nil {
					w.broker.On(servicestest.Last, tt.last...)
				}
				plan := tt.plan
				if plan == "" {
					plan = "small"
				}
				i, o := w.create(plan, "db")
				if got := last(i.Last); got != tt.want {
					t.Errorf("last operation = %q, want %q", got, tt.want)
				}
				if o.State != i.Last.State || o.State == services.Failed && o.Failure.Detail != "provision could not be completed: "+i.Last.Description {
					t.Errorf("operation = %+v, failure %+v", o, o.Failure)
				}
				w.broker.On(servicestest.Last)
				settled()
				if got := len(w.broker.Instances()); got != tt.has {
					t.Errorf("the broker has %d instances, want %d", got, tt.has)
				}
				if open := must(w.operations.By("open", "open")); len(open) > 0 {
					t.Errorf("open operations = %+v, want none", open)
				}
			})
		})
	}
}

// While a broker works, users see its description.
func TestProgressIsVisible(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Provision, servicestest.Behaviour{Async: 3})
		i, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: w.planNamed("small").GUID})
		if err != nil {
			t.Fatal(err)
		}
		if got := last(i.Last); got != "create in progress: " {
			t.Errorf("at first %q", got)
		}
		synctest.Wait()
		if o := must(w.Operation(o.GUID)); !o.Accepted || o.State != services.InProgress {
			t.Errorf("operation = %+v, want it accepted", o)
		}
		var seen []string
		for o := o; !o.Ended(); o = must(w.Operation(o.GUID)) {
			time.Sleep(time.Second)
			synctest.Wait()
			if s := last(must(w.Instance(i.GUID)).Last); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
		want := []string{"create in progress: 2 to go", "create in progress: 1 to go", "create in progress: 0 to go", "create succeeded: made"}
		if d := cmp.Diff(want, seen); d != "" {
			t.Error(d)
		}
	})
}

// A broker is polled less and less often, at its preferred interval, and at once after
// a kick.
func TestPolling(t *testing.T) {
	t.Parallel()
	looks := func(t *testing.T, likes string, after time.Duration, kick bool) (n int) {
		inWorld(t, func(w *world) {
			w.broker.On(servicestest.Provision, servicestest.Behaviour{Async: 1 << 20})
			w.broker.On(servicestest.Last, servicestest.Behaviour{
				NoEffect: true, Body: `{"state": "in progress"}`, Header: map[string]string{"Retry-After": likes},
			})
			i, _, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: w.planNamed("small").GUID})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if kick {
				w.PollNow(i.GUID)
				synctest.Wait()
			}
			time.Sleep(after)
			synctest.Wait()
			n = len(w.broker.Requests(servicestest.Last))
		})
		return n
	}
	if got := looks(t, "", time.Hour, false); got != 68 {
		t.Errorf("looks in an hour = %d, want 68", got)
	}
	if got := looks(t, "600", time.Hour, false); got != 6 {
		t.Errorf("looks in an hour, every ten minutes = %d, want 6", got)
	}
	if got := looks(t, "nonsense", 900*time.Millisecond, false); got != 0 {
		t.Errorf("looks at once = %d, want 0", got)
	}
	if got := looks(t, "", 0, true); got != 1 {
		t.Errorf("looks when told = %d, want 1", got)
	}
}

// Deletes are repeated while a broker fails temporarily. The user can repeat a delete
// that fails.
func TestDeleteInstance(t *testing.T) {
	t.Parallel()
	type does = servicestest.Behaviour
	for _, tt := range []struct {
		name string
		does []does
		last []does
		want string // "": deleted
	}{
		{name: "at once"},
		{name: "later", does: []does{{Async: 2}}},
		{name: "gone already", does: []does{{Status: 410}}},
		{name: "gone while asking", does: []does{{Async: 2}}, last: []does{{Status: 410}}},
		{name: "later, and fails", does: []does{{Async: 2, Fails: true}}, want: "delete failed: no room"},
		{name: "in trouble for a while", does: []does{{Times: 1, NoEffect: true, Status: 500}, {Times: 1, NoEffect: true, Hang: true}, {}}},
		{name: "in trouble", does: []does{{NoEffect: true, Status: 500, Body: `{"description": "oops"}`}}, want: "delete failed: Service broker error: oops"},
		{name: "refuses", does: []does{{NoEffect: true, Status: 400, Body: `{"description": "never"}`}}, want: "delete failed: Service broker error: never"},
		{name: "garbage", does: []does{{NoEffect: true, Body: "<html>"}}, want: "delete failed: The service broker returned an invalid response: expected valid JSON object in body"},
		{name: "created", does: []does{{NoEffect: true, Status: 201}}, want: "delete failed: The service broker returned an invalid response. Status Code: 201 Created, Body: {}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				i, _ := w.create("small", "db")
				w.bind(i)
				w.broker.On(servicestest.Deprovision, tt.does...)
				w.broker.On(servicestest.Last, tt.last...)
				o := w.waitFor(must(w.DeleteInstance(i.GUID, testActor)))
				after, err := w.Instance(i.GUID)
				if got := detail(t, err); tt.want == "" && (got != "not found" || o.State != services.Succeeded) {
					t.Errorf("instance %+v, %q, operation %+v, want it gone", after, got, o)
				}
				if len(w.broker.Bindings()) > 0 {
					t.Errorf("the broker has bindings of it: %v", w.broker.Bindings())
				}
				if tt.want == "" {
					return
				}
				if got := last(after.Last); got != tt.want {
					t.Errorf("last operation = %q, want %q", got, tt.want)
				}
				w.broker.On(servicestest.Deprovision)
				if o := w.waitFor(must(w.DeleteInstance(i.GUID, testActor))); o.State != services.Succeeded || len(w.broker.Instances()) > 0 {
					t.Errorf("repeated: operation = %+v, the broker has %v", o, w.broker.Instances())
				}
			})
		})
	}
}

// Anything that a failed bind may have left is deleted.
func TestCreateBinding(t *testing.T) {
	t.Parallel()
	type does = servicestest.Behaviour
	for _, tt := range []struct {
		name  string
		does  does
		fetch []does
		want  string
		has   int
	}{
		{name: "at once", want: "create succeeded: ", has: 1},
		{name: "later", does: does{Async: 3}, want: "create succeeded: made", has: 1},
		{name: "later, and fails", does: does{Async: 1, Fails: true}, want: "create failed: no room", has: 1},
		{name: "later, hidden for a while", does: does{Async: 1}, fetch: []does{{Times: 2, NoEffect: true, Status: 500}, {}}, want: "create succeeded: ", has: 1},
		{name: "later, hidden", does: does{Async: 1}, fetch: []does{{NoEffect: true, Status: 404}}, want: "create failed: The service broker returned an invalid response. Status Code: 404 Not Found, Body: {}"},
		{name: "later, garbage", does: does{Async: 1}, fetch: []does{{NoEffect: true, Body: `{"credentials": []}`}}, want: "create failed: The service broker returned an invalid response: credentials must be a JSON object"},
		{name: "breaks", does: does{Status: 500}, want: "create failed: The service broker returned an invalid response. Status Code: 500 Internal Server Error, Body: {\"credentials\": …"},
		{name: "refuses", does: does{NoEffect: true, Status: 400, Body: `{"description": "no"}`}, want: "create failed: Service broker error: no"},
		{name: "needs an app", does: does{NoEffect: true, Status: 422, Body: `{"error": "RequiresApp"}`}, want: "create failed: This service supports generation of credentials through binding an application only."},
		{name: "never answers", does: does{Hang: true}, want: "create failed: The request to the service broker timed out"},
		{name: "credentials of another shape", does: does{Body: `{"credentials": "text"}`}, want: "create failed: The service broker returned an invalid response: credentials must be a JSON object"},
		{name: "a drain that is none", does: does{Body: `{"credentials": {}, "syslog_drain_url": "file:///etc"}`}, want: "create failed: The service broker returned an invalid response: syslog_drain_url must be a URL with the scheme syslog, syslog-tls, https or https-batch"},
		{name: "a route service that is none", does: does{Body: `{"credentials": {}, "route_service_url": "https://r.example"}`}, want: "create failed: The service is not registered as a route service. Please contact the service provider."},
		{name: "mounts of another shape", does: does{Body: `{"credentials": {}, "volume_mounts": {}}`}, want: "create failed: The service broker returned an invalid response: volume_mounts must be an Array of JSON objects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				i, _ := w.create("small", "db")
				w.broker.On(servicestest.Bind, tt.does)
				w.broker.On(servicestest.Fetch, tt.fetch...)
				bi, o := w.bind(i)
				got := last(bi.Last)
				if cut, short := strings.CutSuffix(tt.want, "…"); short && strings.HasPrefix(got, cut) {
					got = tt.want
				}
				if got != tt.want || o.State != bi.Last.State {
					t.Errorf("last operation = %q, want %q; operation %+v", got, tt.want, o)
				}
				if bi.Usable() != (len(bi.Credentials) > 0) {
					t.Errorf("credentials = %s, usable %t", bi.Credentials, bi.Usable())
				}
				settled()
				if got := len(w.broker.Bindings()); got != tt.has {
					t.Errorf("the broker has %d bindings, want %d", got, tt.has)
				}
			})
		})
	}
}

// An asynchronous binding that cannot be fetched fails.
func TestAsynchronousBindingMustBeRetrievable(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.SetCatalog(strings.ReplaceAll(testCatalog, `"bindings_retrievable": true`, `"bindings_retrievable": false`))
		_, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: ptr("broker2")})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		i, _ := w.create("small", "db")
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Async: 2})
		bi, _ := w.bind(i)
		if got, want := last(bi.Last), "create failed: The broker responded asynchronously but does not support fetching binding data"; got != want {
			t.Errorf("last operation = %q, want %q", got, want)
		}
		settled()
		if got := w.broker.Bindings(); len(got) > 0 {
			t.Errorf("the broker has %v", got)
		}
	})
}

// An unbind that fails keeps the binding; the user can repeat it. The delete of its
// instance reports why it fails.
func TestDeleteBinding(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		bi, _ := w.bind(i)
		w.broker.On(servicestest.Unbind, servicestest.Behaviour{NoEffect: true, Status: http.StatusConflict, Body: `{"description": "in use"}`})
		if o := w.waitFor(must(w.DeleteBinding(bi.GUID, testActor))); o.State != services.Failed || o.Failure.Detail != "unbind could not be completed: Service broker error: in use" {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if o := w.waitFor(must(w.DeleteInstance(i.GUID, testActor))); o.State != services.Failed || o.Description != "Service broker error: in use" {
			t.Errorf("operation = %+v", o)
		}
		if got := last(must(w.Instance(i.GUID)).Last); got != "delete failed: Service broker error: in use" {
			t.Errorf("last operation = %q", got)
		}
		w.broker.On(servicestest.Unbind, servicestest.Behaviour{Async: 2})
		w.broker.On(servicestest.Deprovision, servicestest.Behaviour{Async: 2})
		if o := w.waitFor(must(w.DeleteInstance(i.GUID, testActor))); o.State != services.Succeeded {
			t.Errorf("operation = %+v", o)
		}
		if got := fmt.Sprint(w.broker.Instances(), w.broker.Bindings()); got != "[] []" {
			t.Errorf("the broker has %s", got)
		}
	})
}

// A delete cancels a create that the broker has accepted, but no other operation.
func TestDeleteDuringCreate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Provision, servicestest.Behaviour{Async: 1 << 20})
		w.stop() // no request is sent to the broker yet
		i, created, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: w.planNamed("small").GUID})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.DeleteInstance(i.GUID, testActor)
		if got := detail(t, err); got != "An operation for service instance db is in progress." {
			t.Errorf("before the broker has it: %q", got)
		}
		w.run()
		synctest.Wait()
		w.broker.On(servicestest.Deprovision, servicestest.Behaviour{Async: 1})
		deleted, err := w.DeleteInstance(i.GUID, testActor)
		if err != nil {
			t.Fatal(err)
		}
		if o := w.waitFor(created); o.State != services.Failed || o.Failure.Detail != "provision could not be completed: delete in progress" {
			t.Errorf("create = %+v", o)
		}
		_, err = w.DeleteInstance(i.GUID, testActor)
		if got := detail(t, err); got != "An operation for service instance db is in progress." {
			t.Errorf("again: %q", got)
		}
		if o := w.waitFor(deleted); o.State != services.Succeeded || len(w.broker.Instances()) > 0 {
			t.Errorf("delete = %+v, the broker has %v", o, w.broker.Instances())
		}
	})
}

// An orphan that cannot be deleted now is retried for a long time, and given up in the
// end.
func TestOrphans(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Provision, servicestest.Behaviour{Status: 500})
		w.broker.On(servicestest.Deprovision, servicestest.Behaviour{Times: 20, NoEffect: true, Status: 500}, servicestest.Behaviour{Times: 2, Async: 1, Fails: true}, servicestest.Behaviour{Times: 1, Status: 400, NoEffect: true}, servicestest.Behaviour{})
		w.create("small", "db")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := w.broker.Instances(); len(got) > 0 {
			t.Errorf("the broker has %v", got)
		}
		w.broker.On(servicestest.Deprovision, servicestest.Behaviour{NoEffect: true, Status: 500})
		w.create("small", "other")
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		if open := must(w.operations.By("open", "open")); len(open) > 0 {
			t.Errorf("open operations = %+v, want none", open)
		}
	})
}

// The name of a failed instance or binding can be used again.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Provision, servicestest.Behaviour{Times: 1, Async: 1, Fails: true}, servicestest.Behaviour{})
		failed, _ := w.create("small", "db")
		i, _ := w.create("small", "db")
		if got := last(i.Last); got != "create succeeded: " || i.GUID == failed.GUID {
			t.Errorf("last operation = %q", got)
		}
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Times: 1, Async: 1, Fails: true}, servicestest.Behaviour{})
		w.bind(i)
		if bi, _ := w.bind(i); !bi.Usable() {
			t.Errorf("binding = %+v", bi)
		}
		settled()
		if got := fmt.Sprint(len(w.broker.Instances()), len(w.broker.Bindings())); got != "1 1" {
			t.Errorf("the broker has %s instances and bindings, want 1 1", got)
		}
	})
}

func ptr[T any](v T) *T { return &v }
