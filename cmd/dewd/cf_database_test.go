//go:build integration

package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// The cf CLI creates a database and binds an app to it. The app has the credentials
// after a restage and not before. Then the CLI deletes everything.
func TestCFDatabases(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: make setup-test")
	}
	s := newStockClient(t, "")
	s.cf("marketplace", "^redis +small, large +", "^postgres +small, large +")
	s.cf("marketplace -e redis", "^ *small +.* free", "^ *large +.* paid")
	s.refuses("create-service nonesuch small db", "could not be found")
	s.refuses("create-service redis nonesuch db", "could not be found")
	s.cf("create-service redis small db --wait -t fast", "Service instance db created")
	s.cf("services", "^db +redis +small +create succeeded +")
	s.cf("service db", "^name: +db$", "^offering: +redis$", "^plan: +small$", "status: create succeeded", "^ *tags: +fast")
	s.cf("create-service redis small db", "already exists")

	s.write("app/Procfile", []byte("web: sleep 1000\n"))
	s.cf("push shop --no-manifest -p app -b binary_buildpack -u process -m 32M --no-route")
	s.cf("bind-service shop db --wait --binding-name cache", "OK")
	s.cf("bind-service shop db", "already bound")
	s.cf("services", "^db +redis +small +shop +create succeeded")
	if env := s.live(0, "ssh shop -c 'echo services=$VCAP_SERVICES'"); !strings.Contains(env, "services={}") && !strings.Contains(env, "services=\n") {
		t.Errorf("VCAP_SERVICES is there before a restage: %s", env)
	}
	s.cf("restage shop")
	env := s.live(0, "ssh shop -c 'echo $VCAP_SERVICES'")
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

	s.cf("create-service-key db mine --wait", "OK")
	s.cf("service-keys db", "^mine +")
	s.cf("service-key db mine", `^.*"password": "[^"]+"`, `"uri": "redis`)
	s.cf("delete-service-key db mine -f --wait", "OK")
	s.cf("rename-service db cache", "OK")
	s.cf("update-service cache -p large --wait", "^.*plan `large` .* is not free", "OK")
	s.cf("services", "^cache +redis +large +shop +update succeeded")
	s.cf("unbind-service shop cache --wait", "OK")
	s.cf("delete-service cache -f --wait", "Service instance cache deleted.")
	s.cf("services", "No service instances found")

	// A user-provided service instance is bound by a manifest.
	s.cf(`create-user-provided-service mail -p '{"user":"me"}'`, "OK")
	s.write("app.yml", []byte("applications:\n- name: shop\n  path: app\n  services:\n  - name: mail\n    binding_name: post\n"))
	s.cf("push -f app.yml", oneRunning)
	s.cf("env shop", `"user-provided"`, `"name": "post"`, `"instance_name": "mail"`)
	s.cf("create-app-manifest shop -p /dev/stdout", "binding_name: post")
}
