//go:build integration

package main

import (
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/dewrun/dew/api/cftest"
	"github.com/dewrun/dew/services/servicestest"
)

// The cf CLI uses services of external brokers and user-provided ones. It finds,
// creates, binds, shares, changes and deletes them, and sets the access to plans.
func TestCFServices(t *testing.T) {
	s := newStockClient(t, "services")
	s.hide(noSuchGUID, "$nobody1")
	s.write("app/Procfile", []byte("web: sleep 1000\n"))
	s.cf("push shop --no-manifest -p app -b binary_buildpack -u process -m 32M --no-start", "name: shop")
	s.cf("create-space annex", "OK")
	s.parts(
		part{"brokers", s.keepsBrokers},
		part{"access", s.opensServices},
		part{"instances", s.makesServices},
		part{"bindings", s.bindsServices},
		part{"keys", s.makesKeys},
		part{"changes", s.changesServices},
		part{"later", s.waitsForServices},
		part{"sharing", s.sharesServices},
		part{"routes", s.bindsRoutes},
		part{"users' own", s.bringsServices},
		part{"manifests", s.namesServices},
		part{"purge", s.purgesServices},
	)
	s.finish()
}

// broker starts a broker that the daemon can reach, with a catalog that the replay also
// uses.
func (s *stock) broker(placeholder, catalog string) *servicestest.Broker {
	s.t.Helper()
	b, err := cftest.NewBroker(catalogs, catalog)
	if err != nil {
		s.t.Fatal(err)
	}
	server := httptest.NewServer(b)
	s.t.Cleanup(server.Close)
	s.hide(server.URL, placeholder)
	return b
}

// catalogs is the folder of the brokers' catalogs, which the replay also uses.
const catalogs = "../../api/testdata/broker"

// happens causes an event outside the client, in the replay as well.
func (s *stock) happens(what string) {
	s.t.Helper()
	if err := cftest.SetBehaviour(s.brokers, catalogs, what); err != nil {
		s.t.Fatal(err)
	}
	s.before = append(s.before, what)
}

func (s *stock) keepsBrokers() {
	s.brokers = []*servicestest.Broker{s.broker("$broker1", "first"), s.broker("$broker2", "second")}
	s.cf("service-brokers", "dew builtin://dew", "!acme")
	s.refuses("create-service-broker acme user wrong $broker1", "Authentication with the service broker failed. Double-check that the username and password are correct.")
	s.refuses("create-service-broker acme user pass $broker2", "Name must be unique")
	s.cf("create-service-broker acme user pass $broker1 --update-if-exists", "OK")
	s.cf("create-service-broker other user pass $broker2 --update-if-exists", "OK")
	s.cf("service-brokers", "acme "+s.hidden["$broker1"], "other "+s.hidden["$broker2"])
	s.cf("update-service-broker acme user pass $broker1", "OK")
	s.refuses("update-service-broker none user pass $broker1", "Service broker 'none' not found")
	s.cf("rename-service-broker other second", "OK")
	s.refuses("rename-service-broker none third", "Service broker 'none' not found")
}

func (s *stock) opensServices() {
	s.cf("service-access", "^.*queue +tiny +none", "^broker: acme$", "^broker: second$")
	s.refuses("enable-service-access none", "Service offering 'none' not found")
	s.refuses("enable-service-access queue", "Service 'queue' is provided by multiple service brokers: acme, second", "Specify a broker by using the '-b' flag.")
	s.refuses("enable-service-access queue -b acme -p none", "The plan 'none' could not be found for service offering 'queue'.")
	s.cf("enable-service-access queue -b acme -o local", "OK")
	s.cf("service-access -b acme -e queue -o local", "^.*queue +tiny +limited +local", "^.*queue +huge +limited +local")
	s.cf("enable-service-access queue -b acme -p tiny", "OK")
	s.cf("disable-service-access queue -b acme -p huge -o local", "OK")
	s.cf("service-access -b acme", "^.*queue +tiny +all", "^.*queue +huge +none")
	s.cf("marketplace", "^queue +tiny +A queue +acme$")
	s.cf("marketplace -e queue -b acme", "^ *tiny +A tiny one +free")
	s.cf("marketplace --show-unavailable -b acme", "^queue +tiny ")
	s.cf("enable-service-access queue -b acme", "OK")
	s.cf("enable-service-access gate -b acme", "OK")
	s.cf("enable-service-access mute", "OK")
	s.cf("marketplace -b acme --no-plans", "^queue +A queue +acme$")
	s.cf("marketplace -e none", "No service offerings found.")
}

func (s *stock) makesServices() {
	s.refuses("create-service none tiny jobs", "The plan 'tiny' could not be found for service offering 'none'.")
	s.refuses("create-service queue none jobs", "The plan 'none' could not be found for service offering 'queue'.")
	s.cf(`create-service queue tiny jobs -b acme -t fast,near -c '{"size":2}' --wait`, "Service instance jobs created", "OK")
	s.cf("create-service queue tiny jobs -b acme", "Service instance jobs already exists", "OK")
	s.cf("services", "^jobs +queue +tiny +create succeeded +acme")
	s.cf("services --no-apps", "^jobs +queue +tiny ")
	s.cf("service jobs", "name: jobs", "offering: queue", "plan: tiny", "broker: acme", "tags: fast, near", "^.*status: +create succeeded", "^.*documentation: +https://docs.example.com/queue")
	s.cf("service jobs --guid", `^[0-9a-f-]{36}$`)
	s.cf("service jobs --params", `"size": 2`)
	s.refuses("service none", "Service instance 'none' not found")
	s.cf("create-service mute still quiet --wait", "OK")
	s.refuses("service quiet --params", "This service does not support fetching service instance parameters.")
	s.happens("broker1 provision fails")
	s.refuses("create-service queue tiny broken -b acme --wait", "provision could not be completed: no room")
	s.happens("broker1 provision obeys")
	s.cf("delete-service broken -f --wait", "OK")
}

func (s *stock) bindsServices() {
	s.cf(`bind-service shop jobs --binding-name tasks -c '{"role":"reader"}' --wait`, "OK")
	s.cf("bind-service shop jobs", "App shop is already bound to service instance jobs.", "OK")
	s.refuses("bind-service none jobs", "App 'none' not found")
	s.refuses("bind-service shop none", "Service instance 'none' not found")
	s.refuses("bind-service shop quiet", "Service plan does not allow bindings.")
	s.cf("services", "^jobs +queue +tiny +shop +create succeeded")
	s.cf("service jobs", "^ *shop +tasks +create succeeded")
	s.cf("bind-service shop jobs --strategy multiple --binding-name tasks --wait", "OK")
	s.cf("cleanup-outdated-service-bindings shop --keep-last 1 --force --wait", "OK")
	s.cf("cleanup-outdated-service-bindings shop --service-instance jobs --force", "^.*No outdated|OK")
	found := regexp.MustCompile(`"guid": ?"([0-9a-f-]{36})"`).FindStringSubmatch(s.live(0, "curl /v3/service_credential_bindings?type=app"))
	if found == nil {
		s.t.Fatal("the app has no binding")
	}
	guid := found[1]
	s.cf("unbind-service shop jobs --guid "+noSuchGUID, "Service binding with GUID "+noSuchGUID+" does not exist", "OK")
	s.cf("unbind-service shop jobs --guid "+guid+" --wait", "Deleting service binding "+guid+"...", "OK")
	s.cf("bind-service shop jobs --wait", "OK")
	s.cf("unbind-service shop jobs --wait", "OK")
	s.cf("unbind-service shop jobs", "Binding between jobs and shop does not exist", "OK")
}

func (s *stock) makesKeys() {
	s.cf(`create-service-key jobs mine -c '{"role":"reader"}' --wait`, "OK")
	s.cf("create-service-key jobs mine", "Service key mine already exists", "OK")
	s.cf("service-keys jobs", "^mine +create succeeded")
	s.cf("service-key jobs mine", `"password": "secret"`)
	s.cf("service-key jobs mine --guid", `^[0-9a-f-]{36}$`)
	s.refuses("service-key jobs none", "No service key none found for service instance jobs")
	s.refuses("service-keys none", "Service instance 'none' not found")
	s.cf("delete-service-key jobs mine -f --wait", "OK")
	s.cf("delete-service-key jobs mine -f", "Service key mine does not exist for service instance jobs.", "OK")
	s.cf("service-keys jobs", "No service keys for service instance jobs")
}

func (s *stock) changesServices() {
	s.cf("rename-service jobs work", "OK")
	s.refuses("rename-service work quiet", "The service instance name is taken: quiet")
	s.refuses("rename-service none other", "Service instance 'none' not found")
	s.cf(`update-service work -p huge -t slow -c '{"size":3}' --wait`, "OK")
	s.cf("services", "^work +queue +huge +update succeeded")
	s.refuses("update-service work -p none", "The plan 'none' could not be found for service offering 'queue' and broker 'acme'.")
	s.refuses("update-service none -p tiny", "Service instance 'none' not found")
	s.cf("update-service work -p tiny --wait", "OK")
	s.cf("upgrade-service work -f", "No upgrade is available.", "OK")
	s.happens("broker1 offers newer")
	s.cf("update-service-broker acme user pass $broker1", "OK")
	s.cf("service work", "^.*[Uu]pgrad")
	s.cf("services", "^work +queue +tiny +.* yes")
	s.cf("upgrade-service work -f --wait", "OK")
	s.cf("upgrade-service work -f", "No upgrade is available.", "OK")
	s.refuses("upgrade-service none -f", "Service instance 'none' not found")
}

// waitsForServices checks a slow broker: commands need not wait for it.
func (s *stock) waitsForServices() {
	s.happens("broker1 provision later")
	s.cf("create-service queue tiny slow -b acme", "Create in progress. Use 'cf services' or 'cf service slow' to check operation status.", "OK")
	s.cf("services", "^slow +queue +tiny +create in progress")
	s.refuses("update-service slow -t any", "An operation for service instance slow is in progress.")
	s.refuses("bind-service shop slow", "There is an operation in progress for the service instance")
	s.happens("broker1 provision ends")
	s.eventuallySays("^slow +queue +tiny +create succeeded", "services")
	s.cf("services", "^slow +queue +tiny +create succeeded")
	s.cf("delete-service slow -f --wait", "Service instance slow deleted.", "OK")
}

func (s *stock) sharesServices() {
	s.refuses("share-service work -s annex", "Feature Disabled: service_instance_sharing")
	s.cf("enable-feature-flag service_instance_sharing", "OK")
	s.cf("share-service work -s annex", "OK")
	s.cf("share-service work -s annex -o local", "OK")
	s.refuses("share-service work -s nowhere", "Space 'nowhere' not found.")
	s.refuses("share-service none -s annex", "Service instance 'none' not found")
	s.refuses("share-service quiet -s annex", "The mute service does not support service instance sharing.")
	s.cf("service work", "^.*annex")
	s.cf("target -s annex", "space: annex")
	s.cf("services", "^work ")
	s.cf("service work", "^.*shared from|^.*dev")
	s.cf("target -s dev", "space: dev")
	s.cf("unshare-service work -s annex -f", "OK")
	s.refuses("unshare-service work -s annex -f", "Ensure the space exists and the service instance has been shared to this space.")
	s.refuses("unshare-service none -s annex -f", "Service instance 'none' not found")
}

func (s *stock) bindsRoutes() {
	s.cf("create-service gate open door --wait", "OK")
	s.cf("bind-route-service dew.localhost --hostname shop door --wait", "OK")
	s.cf("bind-route-service dew.localhost --hostname shop door", "^.*already bound", "OK")
	s.cf("routes", "^.*shop .*door")
	s.refuses("bind-route-service dew.localhost --hostname none door", "Route with host 'none', domain 'dew.localhost', and path '/' not found.")
	s.refuses("bind-route-service dew.localhost --hostname shop work", "This service instance does not support route binding")
	s.refuses("bind-route-service dew.localhost --hostname shop none", "Service instance 'none' not found")
	s.cf("unbind-route-service dew.localhost --hostname shop door -f --wait", "OK")
	s.cf("unbind-route-service dew.localhost --hostname shop door -f", "^.*not bound|^.*was not", "OK")
	s.cf("delete-service door -f --wait", "OK")
}

func (s *stock) bringsServices() {
	s.write("creds.json", []byte(`{"user":"you"}`))
	s.cf(`create-user-provided-service mail -p '{"user":"me"}' -t smtp -l syslog://logs.example:514 -r https://front.example`, "OK")
	s.cf("cups mail", "Service instance mail already exists", "OK")
	s.cf("create-user-provided-service file -p creds.json", "OK")
	s.types("alice", "create-user-provided-service typed -p user", "OK")
	s.refuses("create-user-provided-service wrong -p @none", "@none: EOF")
	s.cf("services", "^mail +user-provided")
	s.cf("service mail", "^type: +user-provided", "tags: smtp", "route service url: https://front.example", "syslog drain url: syslog://logs.example:514")
	s.cf(`update-user-provided-service mail -t smtp,fast -l '' -r '' -p '{"user":"you"}'`, "OK")
	s.refuses("update-user-provided-service none -t x", "Service instance 'none' not found")
	s.refuses("update-service mail -p tiny", "The service instance 'mail' is not managed")
	s.cf("bind-service shop mail", "OK")
	s.cf("unbind-service shop mail", "OK")
	s.cf("bind-service shop file", "OK")
	s.cf("delete-service file -f", "Service instance file deleted.", "OK") // this deletes its bindings
	s.cf("delete-service typed -f", "Service instance typed deleted.", "OK")
	s.cf("delete-service typed -f", "Service instance typed did not exist.", "OK")
}

func (s *stock) namesServices() {
	s.write("app.yml", []byte("applications:\n- name: shop\n  path: app\n  services:\n  - name: mail\n    binding_name: post\n  - work\n"))
	s.cf("push -f app.yml --no-start", "name: shop")
	s.cf("env shop", "VCAP_SERVICES: {}") // not before it is staged
	s.cf("services", "^mail +user-provided +shop ", "^work +queue +tiny +shop ")
	s.cf("create-app-manifest shop -p written.yml", "OK")
	s.write("bad.yml", []byte("applications:\n- name: shop\n  path: app\n  services: [nonesuch]\n"))
	s.refuses("push -f bad.yml --no-start", "Service instance 'nonesuch' not found")
}

func (s *stock) purgesServices() {
	s.refuses("delete-service-broker acme -f", "Can not remove brokers that have associated service instances: acme")
	s.cf("purge-service-instance work -f", "OK")
	s.cf("purge-service-instance work -f", "Service instance work did not exist.", "OK")
	s.refuses("purge-service-offering queue -f", "Service 'queue' is provided by multiple service brokers: acme, second")
	s.cf("purge-service-offering queue -b second -f", "OK")
	s.cf("purge-service-offering mute -f", "OK")
	s.cf("purge-service-offering none -f", "^.*'none' not found", "OK")
	s.cf("disable-service-access gate", "OK")
	s.refuses("disable-service-access none", "Service offering 'none' not found")
	s.cf("delete-service-broker second -f", "OK")
	s.cf("delete-service-broker second -f", "Service broker 'second' does not exist.", "OK")
	s.cf("create-service-broker near user pass $broker2 --space-scoped", "OK")
	s.cf("marketplace -b near", "^queue +tiny ")
	s.cf("delete-service-broker near -f", "OK")
	s.cf("delete-service-broker acme -f", "OK")
	s.cf("logout", "OK")
	s.cf("marketplace", "^redis +small, large ", "!queue")
}
