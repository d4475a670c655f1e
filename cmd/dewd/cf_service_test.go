//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// newStockClient is the stock client, logged in.
func newStockClient(t *testing.T) stockClient {
	t.Helper()
	s := stockClient{newStock(t)}
	s.run(0, nil, "api", s.url)
	s.run(0, nil, "login", "-u", "admin", "-p", s.adminPassword(), "-o", "local", "-s", "dev")
	return s
}

// output is what a command that must end well writes.
func (s stockClient) output(args ...string) string {
	s.t.Helper()
	out, err := s.command(s.t.Context(), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("cf %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The stock client takes a database from the marketplace, binds an app to it, finds
// the credentials after a restage and not before, and puts everything back.
func TestCFServices(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: make setup-test")
	}
	s := newStockClient(t)
	s.run(0, []string{`(?m)^redis +small, large +`, `(?m)^postgres +small, large +`}, "marketplace")
	s.run(0, []string{`(?m)^ *small +.* free`, `(?m)^ *large +.* paid`}, "marketplace", "-e", "redis")
	s.run(1, []string{"could not be found"}, "create-service", "nonesuch", "small", "db")
	s.run(1, []string{"could not be found"}, "create-service", "redis", "nonesuch", "db")
	s.run(0, []string{"Service instance db created"}, "create-service", "redis", "small", "db", "--wait", "-t", "fast")
	s.run(0, []string{`(?m)^db +redis +small +create succeeded +`}, "services")
	s.run(0, []string{`(?m)^name: +db$`, `(?m)^offering: +redis$`, `(?m)^plan: +small$`, `status: +create succeeded`, `(?m)^ *tags: +fast`}, "service", "db")
	s.run(0, []string{"already exists"}, "create-service", "redis", "small", "db")

	s.write("app/Procfile", []byte("web: sleep 1000\n"))
	s.run(0, nil, "push", "shop", "--no-manifest", "-p", "app", "-b", "binary_buildpack", "-u", "process", "-m", "32M", "--no-route")
	s.run(0, []string{"OK"}, "bind-service", "shop", "db", "--wait", "--binding-name", "cache")
	s.run(0, []string{"already bound"}, "bind-service", "shop", "db")
	s.run(0, []string{`(?m)^db +redis +small +shop +create succeeded`}, "services")
	if env := s.output("ssh", "shop", "-c", "echo services=$VCAP_SERVICES"); !strings.Contains(env, "services={}") && !strings.Contains(env, "services=\n") {
		t.Errorf("VCAP_SERVICES is there before a restage: %s", env)
	}
	s.run(0, nil, "restage", "shop")
	env := s.output("ssh", "shop", "-c", "echo $VCAP_SERVICES")
	var seen map[string][]struct {
		Label, Name, Plan string
		BindingName       string `json:"binding_name"`
		InstanceName      string `json:"instance_name"`
		Credentials       struct {
			Host     string
			Port     int
			Password string
		}
	}
	if err := json.Unmarshal([]byte(env), &seen); err != nil || len(seen["redis"]) != 1 {
		t.Fatalf("VCAP_SERVICES = %s: %v", env, err)
	}
	one := seen["redis"][0]
	if one.Name != "cache" || one.InstanceName != "db" || one.Plan != "small" || one.Credentials.Port == 0 || one.Credentials.Password == "" {
		t.Errorf("the entry of VCAP_SERVICES is not whole: label %s, name %s, instance %s, plan %s", one.Label, one.Name, one.InstanceName, one.Plan)
	}

	s.run(0, []string{"OK"}, "create-service-key", "db", "mine", "--wait")
	s.run(0, []string{`(?m)^mine +`}, "service-keys", "db")
	s.run(0, []string{`"password": "[^"]+"`, `"uri": "redis`}, "service-key", "db", "mine")
	s.run(0, []string{"OK"}, "delete-service-key", "db", "mine", "-f", "--wait")
	s.run(0, []string{"OK"}, "rename-service", "db", "cache")
	s.run(0, []string{"plan `large` .* is not free", "OK"}, "update-service", "cache", "-p", "large", "--wait")
	s.run(0, []string{`(?m)^cache +redis +large +shop +update succeeded`}, "services")
	s.run(0, []string{"OK"}, "unbind-service", "shop", "cache", "--wait")
	s.run(0, []string{"deleted"}, "delete-service", "cache", "-f", "--wait")
	s.run(0, []string{"No service instances found"}, "services")
}

// Services that users bring along, and services in manifests.
func TestCFUserProvidedServices(t *testing.T) {
	s := newStockClient(t)
	s.run(0, []string{"OK"}, "create-user-provided-service", "mail", "-p", `{"user":"me","password":"hidden"}`, "-t", "smtp")
	s.run(1, nil, "create-user-provided-service", "wrong", "-p", "@nonesuch")
	s.run(0, []string{`(?m)^mail +user-provided`}, "services")
	s.run(0, []string{"OK"}, "update-user-provided-service", "mail", "-t", "smtp,fast")
	s.write("app/Procfile", []byte("web: sleep 1000\n"))
	s.write("app.yml", []byte("applications:\n- name: shop\n  path: app\n  memory: 32M\n  no-route: true\n  health-check-type: process\n"+
		"  buildpacks: [binary_buildpack]\n  services:\n  - name: mail\n    binding_name: post\n"))
	s.run(0, nil, "push", "-f", "app.yml")
	s.run(0, []string{`"user-provided"`, `"name": "post"`, `"instance_name": "mail"`}, "env", "shop")
	s.run(0, []string{`binding_name: post`}, "create-app-manifest", "shop", "-p", "/dev/stdout")
	s.write("bad.yml", []byte("applications:\n- name: other\n  path: app\n  services: [nonesuch]\n"))
	s.run(1, []string{"Service instance 'nonesuch' not found"}, "push", "-f", "bad.yml")
	s.run(0, []string{"OK"}, "unbind-service", "shop", "mail")
	s.run(0, []string{"deleted"}, "delete-service", "mail", "-f")
}

// broker is a small broker that answers all at once.
func broker(t *testing.T) *httptest.Server {
	t.Helper()
	instance := regexp.MustCompile(`^/v2/service_instances/[^/]+$`)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v2/catalog":
			fmt.Fprint(w, `{"services":[{"id":"queue-id","name":"queue","description":"A queue","bindable":true,`+
				`"plans":[{"id":"tiny-id","name":"tiny","description":"A tiny one"}]}]}`)
		case r.Method == http.MethodPut && instance.MatchString(r.URL.Path):
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"dashboard_url":"https://queue.example.com"}`)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"credentials":{"uri":"amqp://queue.example.com"}}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
}

// Brokers elsewhere, and who may have what they offer.
func TestCFServiceBrokers(t *testing.T) {
	s := newStockClient(t)
	b := broker(t)
	t.Cleanup(b.Close)
	s.run(1, []string{"(?i)authentication|rejected|credentials|401"}, "create-service-broker", "other", "me", "wrong", b.URL)
	s.run(0, []string{"OK"}, "create-service-broker", "other", "me", "secret", b.URL, "--update-if-exists")
	s.run(0, []string{`(?m)^other +http`}, "service-brokers")
	s.run(0, []string{`(?m)queue +tiny +none`}, "service-access")
	s.run(0, []string{"OK"}, "enable-service-access", "queue", "-o", "local")
	s.run(0, []string{`(?m)queue +tiny +limited +local`}, "service-access")
	s.run(0, []string{"OK"}, "enable-service-access", "queue")
	s.run(0, []string{`(?m)^queue +tiny`}, "marketplace")
	s.run(0, nil, "create-service", "queue", "tiny", "jobs", "--wait")
	s.run(0, []string{`dashboard url: +https://queue\.example\.com`}, "service", "jobs")
	s.run(0, nil, "create-service-key", "jobs", "k", "--wait")
	s.run(0, []string{`amqp://queue\.example\.com`}, "service-key", "jobs", "k")
	s.run(1, []string{"(?i)instances"}, "delete-service-broker", "other", "-f")
	s.run(0, nil, "delete-service", "jobs", "-f", "--wait")
	s.run(0, []string{"OK"}, "update-service-broker", "other", "me", "secret", b.URL)
	s.run(0, []string{"OK"}, "disable-service-access", "queue")
	s.run(0, []string{"OK"}, "delete-service-broker", "other", "-f")
}
