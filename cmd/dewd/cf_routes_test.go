//go:build integration

package main

import "testing"

// The cf CLI manages domains and routes: private and shared ones, for HTTP and TCP,
// with options and several destinations. It shares routes with other spaces and moves
// them there.
func TestCFRoutes(t *testing.T) {
	s := newStockClient(t, "routes")
	s.write("small/hello.txt", []byte("hello\n"))
	s.cf("create-org club", "OK")
	s.cf("create-space den -o club", "OK")
	s.cf("create-space annex", "OK")
	for _, name := range []string{"shop", "cafe"} {
		s.cf("push "+name+" --no-manifest -p small -c '"+sleepy+"' -u process -m 32M -b binary_buildpack --no-route --no-start", "name: "+name)
	}
	s.parts(
		part{"domains", s.keepsDomains},
		part{"http", s.keepsRoutes},
		part{"destinations", s.mapsRoutes},
		part{"options", s.tunesRoutes},
		part{"tcp", s.keepsPorts},
		part{"spaces", s.sharesRoutes},
		part{"policies", s.usesPolicies},
		part{"orphans", s.deletesOrphans},
	)
	s.finish()
}

func (s *stock) keepsDomains() {
	s.cf("domains", `^dew\.localhost +shared`, `^apps\.internal +shared +true`)
	s.cf("create-private-domain local shop.example", "OK")
	s.cf("create-private-domain local shop.example", `The domain name "shop.example" is already in use`, "OK")
	s.refuses("create-private-domain nowhere other.example", "Organization 'nowhere' not found.")
	s.cf("share-private-domain club shop.example", "OK")
	s.refuses("share-private-domain nowhere shop.example", "Organization 'nowhere' not found.")
	s.refuses("share-private-domain club none.example", "Domain 'none.example' not found.")
	s.cf("target -o club -s den", "space: den")
	s.cf("domains", `^shop\.example +private`)
	s.cf("target -o local -s dev", "space: dev")
	s.keepsOrg()
	s.types("y", "unshare-private-domain club shop.example", "OK")
	s.refuses("delete-shared-domain shop.example -f", "Domain 'shop.example' is a private domain, not a shared domain.")
	s.cf("create-shared-domain all.example", "OK")
	s.refuses("create-shared-domain all.example", `The domain name "all.example" is already in use`)
	s.refuses("delete-private-domain all.example -f", "Domain 'all.example' is a shared domain, not a private domain.")
	s.cf("create-shared-domain inner.example --internal", "OK")
	s.cf("router-groups", "^default-tcp +tcp")
	s.cf("create-shared-domain ports.example --router-group default-tcp", "OK")
	s.refuses("create-shared-domain odd.example --router-group none", "Router group 'none' not found.")
	s.cf("domains", `^all\.example +shared +http`, `^inner\.example +shared +true +http`, `^ports\.example +shared +tcp`, `^shop\.example +private +http`)
	s.cf("delete-shared-domain inner.example -f", "OK")
	s.cf("delete-shared-domain inner.example -f", "Domain 'inner.example' does not exist.", "OK")
}

// keepsOrg checks that an org cannot be deleted while other orgs use its domain.
func (s *stock) keepsOrg() {
	s.cf("create-org owner", "OK")
	s.cf("create-private-domain owner owned.example", "OK")
	s.cf("share-private-domain club owned.example", "OK")
	s.refuses("delete-org owner -f", "Deletion of organization owner failed because one or more resources within could not be deleted.",
		"Domain 'owned.example' is shared with other organizations. Unshare before deleting.")
	s.types("y", "unshare-private-domain club owned.example", "OK")
	s.cf("delete-org owner -f", "OK")
}

func (s *stock) keepsRoutes() {
	s.cf("check-route dew.localhost --hostname till", "Route 'till.dew.localhost' does not exist.")
	s.cf("create-route dew.localhost -n till", "Route till.dew.localhost has been created.")
	s.cf("create-route dew.localhost -n till --path deep", "Route till.dew.localhost/deep has been created.")
	s.cf("create-route shop.example", "Route shop.example has been created.")
	s.refuses("create-route dew.localhost", "Missing host. Routes in shared domains must have a host defined.")
	s.cf("check-route dew.localhost --hostname till", "Route 'till.dew.localhost' does exist.")
	s.cf("check-route dew.localhost --hostname till --path deep", "Route 'till.dew.localhost/deep' does exist.")
	s.refuses("check-route none.example", "Domain 'none.example' not found.")
	s.cf("route dew.localhost --hostname till", "host: till", "domain: dew.localhost", "Destinations:")
	s.refuses("route dew.localhost --hostname none", "Route with host 'none', domain 'dew.localhost', and path '/' not found.")
}

func (s *stock) mapsRoutes() {
	s.cf("map-route shop dew.localhost --hostname till", "OK")
	s.cf("map-route cafe dew.localhost --hostname till --app-port 9000", "OK")
	s.cf("map-route shop dew.localhost --hostname fast --app-protocol http2", "OK")
	s.refuses("map-route none dew.localhost --hostname till", "App 'none' not found.")
	s.refuses("map-route shop none.example", "Domain 'none.example' not found.")
	s.cf("route dew.localhost --hostname till", "^.*shop +web +8080 +http1", "^.*cafe +web +9000 +http1")
	s.cf("routes", "dev till dew.localhost http http1 8080, 9000 shop, cafe", "dev fast dew.localhost http http2 8080 shop")
	s.cf("update-destination shop dew.localhost --hostname till --app-protocol http2", "OK")
	s.cf("update-destination shop dew.localhost --hostname till --app-protocol http2", "OK")
	s.cf("route dew.localhost --hostname till", "^.*shop +web +8080 +http2")
	s.refuses("update-destination cafe dew.localhost --hostname fast --app-protocol http2", "Unknown field(s): 'protocol'")
	s.refuses("delete cafe -f -r", "App 'cafe' was not deleted because route 'till.dew.localhost' is mapped to more than one app.")
	s.cf("unmap-route cafe dew.localhost --hostname till", "OK")
	s.cf("unmap-route cafe dew.localhost --hostname till", "Route to be unmapped is not currently mapped to the application.", "OK")
	s.refuses("unmap-route shop dew.localhost --hostname none", "Route with host 'none', domain 'dew.localhost', and path '/' not found.")
	s.cf("delete-route none.example -f", "Domain 'none.example' not found.", "OK")
}

func (s *stock) tunesRoutes() {
	s.cf("create-route dew.localhost --hostname tuned -o loadbalancing=round-robin", "Route tuned.dew.localhost has been created.")
	s.cf("routes", "^dev +tuned .*loadbalancing=round-robin")
	s.cf("route dew.localhost --hostname tuned", "^options: +\\{loadbalancing=round-robin\\}")
	s.cf("update-route dew.localhost --hostname tuned --remove-option loadbalancing", "Route tuned.dew.localhost has been updated")
	s.cf("update-route dew.localhost --hostname tuned -o loadbalancing=round-robin", "Route tuned.dew.localhost has been updated")
	s.refuses("create-route dew.localhost --hostname odd -o loadbalancing=coin", "options.loadbalancing: must be one of 'round-robin, least-connection' if present")
	s.refuses("create-route dew.localhost --hostname odd -o loadbalancing=hash -o hash_header=X-User", "Unknown field(s): 'hash_header'. An administrator can enable the feature flag hash_based_routing")
	s.cf("enable-feature-flag hash_based_routing", "OK")
	s.refuses("create-route dew.localhost --hostname odd -o loadbalancing=hash", "Hash header must be present when loadbalancing is set to hash.")
	s.cf("create-route dew.localhost --hostname hashed -o loadbalancing=hash -o hash_header=X-User -o hash_balance=1.25", "Route hashed.dew.localhost has been created.")
	s.cf("route dew.localhost --hostname hashed", "^options: +\\{.*hash_header=X-User", "hash_balance=1.3")
	s.cf("update-route dew.localhost --hostname hashed -o loadbalancing=round-robin", "Route hashed.dew.localhost has been updated")
	s.cf("route dew.localhost --hostname hashed", "^options: +\\{loadbalancing=round-robin\\}")
	s.cf("disable-feature-flag hash_based_routing", "OK")
	s.cf("delete-route dew.localhost --hostname hashed -f", "OK")
	s.cf("map-route shop dew.localhost --hostname mapped -o loadbalancing=least-connection", "OK")
}

func (s *stock) keepsPorts() {
	s.cf("create-route ports.example --port 20010", "Route ports.example:20010 has been created.")
	s.cf("create-route ports.example", "^Route ports.example:\\d+ has been created.")
	s.refuses("create-route ports.example --port 1", "port: 1 is not available: router group default-tcp has the ports 20010-20011")
	s.refuses("create-route dew.localhost --hostname p --port 20010", "Routes with protocol 'http' do not support ports.")
	s.cf("check-route ports.example --port 20010", "Route 'ports.example:20010' does exist.")
	s.cf("map-route shop ports.example --port 20010", "OK")
	s.cf("route ports.example --port 20010", "port: 20010", "protocol: tcp")
	s.cf("routes", "dev ports.example 20010 tcp tcp 8080 shop")
	s.cf("unmap-route shop ports.example --port 20010", "OK")
	s.cf("delete-route ports.example --port 20010 -f", "OK")
	s.cf("delete-route ports.example --port 20010 -f", "^.*not found", "OK")
}

func (s *stock) sharesRoutes() {
	s.refuses("share-route dew.localhost --hostname till -s annex", "Feature Disabled: route_sharing")
	s.cf("enable-feature-flag route_sharing", "OK")
	s.cf("share-route dew.localhost --hostname till -s annex", "OK")
	s.cf("share-route dew.localhost --hostname till -s den -o club", "OK")
	s.refuses("share-route dew.localhost --hostname till -s nowhere", "Space 'nowhere' not found.")
	s.cf("unshare-route dew.localhost --hostname till -s annex", "OK")
	s.cf("unshare-route dew.localhost --hostname till -s den -o club", "OK")
	s.cf("move-route dew.localhost --hostname fast -s annex", "OK")
	s.refuses("move-route dew.localhost --hostname none -s annex", "Route with host 'none', domain 'dew.localhost', and path '/' not found.")
	s.refuses("move-route dew.localhost --hostname till -s den -o nowhere", "Organization 'nowhere' not found.")
	s.cf("routes --org-level", "^annex +fast ", "^dev +till ")
	s.cf("routes", "^annex +fast ") // the former owner can still use it
}

func (s *stock) deletesOrphans() {
	s.cf("delete-orphaned-routes -f", "OK")
	s.cf("routes", "^dev +till ", "!^dev +tuned ", "!^dev +.*/deep")
	s.cf("delete-orphaned-routes -f", "OK")
	s.cf("delete-private-domain shop.example -f", "OK")
	s.cf("delete-private-domain shop.example -f", "Domain 'shop.example' does not exist.", "OK")
	s.cf("delete-shared-domain ports.example -f", "OK")
	s.cf("delete shop -f -r", "OK")
	s.cf("delete cafe -f", "OK")
}

// usesPolicies creates, lists and deletes network policies.
func (s *stock) usesPolicies() {
	s.cf("add-network-policy shop cafe", "OK")
	s.cf("add-network-policy shop cafe --protocol udp --port 53-54", "OK")
	s.cf("network-policies", `^shop +cafe +tcp +8080 +dev +local`, `^shop +cafe +udp +53-54 +dev +local`)
	s.cf("network-policies --source cafe", "!^shop ")
	s.refuses("add-network-policy shop nobody", "App 'nobody' not found.")
	s.cf("remove-network-policy shop cafe --protocol tcp --port 8080", "OK")
	s.cf("remove-network-policy shop cafe --protocol tcp --port 8080", "Policy does not exist.", "OK")
	s.cf("network-policies", "!^shop +cafe +tcp", `^shop +cafe +udp`)
	s.cf("remove-network-policy shop cafe --protocol udp --port 53-54", "OK")
}
