package probe

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"
)

const inSpaces = "Resources of other spaces"

// noSuch is a guid that nothing has.
const noSuch = "00000000-0000-4000-8000-000000000000"

func spaceAttacks() []attack {
	s := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: inSpaces, Name: name, Want: want}, run}
	}
	const hidden = "status 404 for every role elsewhere"
	get := func(name string, paths func(v appIDs) []string) attack {
		return s(name, hidden, func(w *target) (string, error) { return w.hidden(http.MethodGet, "", paths(w.victim)...) })
	}
	return []attack{
		get("read an app, its processes, crashes and usage", func(v appIDs) []string {
			a, d := "/v3/apps/"+v.app, "/dew/v1/apps/"+v.app
			return []string{
				a, a + "/processes", a + "/processes/web", a + "/processes/web/stats", a + "/sidecars", a + "/manifest", a + "/permissions", a + "/features", a + "/revisions",
				"/v3/processes/" + v.process, "/v3/processes/" + v.process + "/stats", a + "/crashes", d + "/crashes", d + "/usage", d + "/bindings", d + "/crash-mails", d + "/terminal",
			}
		}),
		get("read the environment of an app", func(v appIDs) []string {
			return []string{"/v3/apps/" + v.app + "/env", "/v3/apps/" + v.app + "/environment_variables"}
		}),
		get("read and download packages and droplets", func(v appIDs) []string {
			return []string{
				"/v3/packages/" + v.pkg, "/v3/packages/" + v.pkg + "/download", "/v3/droplets/" + v.droplet, "/v3/droplets/" + v.droplet + "/download",
				"/v3/apps/" + v.app + "/packages", "/v3/apps/" + v.app + "/droplets", "/v3/apps/" + v.app + "/droplets/current", "/v3/packages/" + v.pkg + "/droplets",
			}
		}),
		get("read log lines and metrics", func(v appIDs) []string {
			return []string{"/api/v1/read/" + v.app, "/stream/v1/apps/" + v.app + "?follow=false", "/stream/v1/apps/" + v.app + "/verify", "/stream/v1/services/" + v.service + "?follow=false"}
		}),
		s("read log lines through the log gateway and queries", "no line and no sample of the app", foreignLogs),
		get("read tasks", func(v appIDs) []string {
			return []string{"/v3/tasks/" + v.task, "/v3/apps/" + v.app + "/tasks"}
		}),
		get("read service instances and their credentials", func(v appIDs) []string {
			return []string{
				"/v3/service_instances/" + v.service, "/v3/service_instances/" + v.service + "/parameters", "/v3/service_instances/" + v.provided + "/credentials",
				"/v3/service_credential_bindings/" + v.binding + "/details", "/v3/service_credential_bindings/" + v.key, "/v3/service_credential_bindings/" + v.key + "/details",
				"/v3/service_credential_bindings/" + v.key + "/parameters", "/v2/service_instances/" + v.service + "/permissions",
			}
		}),
		get("read routes and spaces", func(v appIDs) []string {
			return []string{"/v3/routes/" + v.route, "/v3/routes/" + v.route + "/destinations", "/v3/spaces/" + v.space, "/v3/spaces/" + v.space + "/usage_summary", "/v3/spaces/" + v.space + "/users"}
		}),
		s("find resources in lists, filters and includes", "no list has a guid of the victim", foreignLists),
		s("change, stop, scale or delete resources", hidden, foreignChanges),
		s("name a foreign resource in the body of a request", "status 404 or 422 for every role elsewhere", foreignBodies),
		s("upload to a foreign package, droplet or space", hidden, foreignUploads),
		s("open a shell in a foreign app over SSH", "the login is refused for every role elsewhere", foreignSSH),
		s("send notifications or read mails without the scope", "status 403", foreignMails),
		s("read secrets with a role that only reads the space", "status 403 or 404", insideSecrets),
		s("change an app with a role that only reads the space", "status 403", insideChanges),
		s("call each endpoint of administrators as a developer", "status 403 or 404", adminEndpoints),
		s("call each endpoint without a token", "status 401", everyEndpoint),
		s("give oneself a role", "status 403 or 422, and no role", ownRole),
	}
}

// hidden sends requests as every user without a role in the space, and wants 404.
func (w *target) hidden(method, body string, paths ...string) (string, error) {
	var bad error
	for _, c := range w.outsiders {
		for _, p := range paths {
			a, err := w.ask(c.token, method, p, body)
			if err != nil {
				return "", err
			}
			if a.status != http.StatusNotFound || strings.Contains(a.body, canary) {
				bad = errors.Join(bad, fmt.Errorf("%s %s as %s: %s", method, p, c.name, a))
			}
		}
	}
	return fmt.Sprintf("404 for %d users, %d paths", len(w.outsiders), len(paths)), errors.Join(bad, w.adminSees(method, paths))
}

// adminSees checks that the paths exist, so that a typing error does not pass.
func (w *target) adminSees(method string, paths []string) (bad error) {
	if method != http.MethodGet {
		return nil
	}
	for _, p := range paths {
		a, err := w.ask(w.admin, method, p, "")
		if err != nil || a.status == http.StatusNotFound {
			bad = errors.Join(bad, err, fmt.Errorf("%s as an administrator: %s", p, a))
		}
	}
	return bad
}

func foreignLogs(w *target) (string, error) {
	query := `/api/v1/query?query=cpu{source_id="` + w.victim.app + `"}`
	for _, c := range w.outsiders {
		for _, p := range []string{query, "/api/v1/meta", "/v2/read?log&source_id=" + w.victim.app, "/dew/v1/live"} {
			r := strings.NewReplacer(`"`, "%22", "{", "%7B", "}", "%7D").Replace(p)
			a, err := w.ask(c.token, http.MethodGet, r, "")
			if err != nil {
				return "", err
			}
			if strings.Contains(a.body, canary) || strings.Contains(a.body, w.victim.app) && a.status < 300 {
				return a.String(), fmt.Errorf("%s sees %s", c.name, p)
			}
		}
	}
	return fmt.Sprintf("nothing for %d users, 4 paths", len(w.outsiders)), nil
}

func foreignLists(w *target) (string, error) {
	v := w.victim
	lists := []string{
		"/v3/apps?include=space,space.organization", "/v3/apps?guids=" + v.app, "/v3/apps?space_guids=" + v.space, "/v3/processes", "/v3/packages", "/v3/droplets", "/v3/builds", "/v3/deployments",
		"/v3/tasks", "/v3/routes?app_guids=" + v.app, "/v3/service_instances", "/v3/service_credential_bindings?include=app,service_instance", "/v3/service_route_bindings",
		"/v3/audit_events?target_guids=" + v.app, "/v3/app_usage_events", "/v3/service_usage_events", "/v3/spaces?include=organization", "/v3/roles?include=user,space,organization", "/dew/v1/live", policiesPath + "?id=" + v.app,
	}
	secret := []string{v.app, v.process, v.pkg, v.droplet, v.route, v.task, v.service, v.binding, v.key, v.provided, canary}
	for _, c := range w.outsiders {
		for _, p := range lists {
			a, err := w.ask(c.token, http.MethodGet, p, "")
			if err != nil {
				return "", err
			}
			for _, s := range secret {
				if strings.Contains(resources(a.body), s) {
					return a.String(), fmt.Errorf("%s finds %s in %s", c.name, s, p)
				}
			}
		}
	}
	return fmt.Sprintf("none for %d users, %d lists", len(w.outsiders), len(lists)), nil
}

// resources returns a list without its links, which repeat the query.
func resources(body string) string {
	return regexp.MustCompile(`"pagination":\{.*?\}\}|"href":"[^"]*"`).ReplaceAllString(body, "")
}

func foreignChanges(w *target) (string, error) {
	v := w.victim
	a := "/v3/apps/" + v.app
	var bad error
	n := 0
	for method, paths := range map[string][]string{
		http.MethodPatch: {
			a, a + "/environment_variables", "/v3/processes/" + v.process, a + "/features/ssh", a + "/relationships/current_droplet", "/v3/droplets/" + v.droplet, "/v3/packages/" + v.pkg,
			"/v3/routes/" + v.route, "/v3/service_instances/" + v.service, "/v3/spaces/" + v.space, "/v3/tasks/" + v.task,
		},
		http.MethodPost: {
			a + "/actions/stop", a + "/actions/restart", "/v3/processes/" + v.process + "/actions/scale", a + "/tasks", a + "/sidecars", "/v3/tasks/" + v.task + "/actions/cancel",
			"/v3/routes/" + v.route + "/destinations", "/dew/v1/processes/" + v.process + "/kill", "/v3/spaces/" + v.space + "/actions/apply_manifest", "/v3/spaces/" + v.space + "/manifest_diff",
			"/v3/service_instances/" + v.service + "/relationships/shared_spaces", "/v3/routes/" + v.route + "/relationships/shared_spaces",
		},
		http.MethodDelete: {
			a, "/v3/droplets/" + v.droplet, "/v3/packages/" + v.pkg, "/v3/routes/" + v.route, "/v3/service_instances/" + v.service, "/v3/service_credential_bindings/" + v.key,
			"/v3/processes/" + v.process + "/instances/0", "/v3/spaces/" + v.space, "/v3/spaces/" + v.space + "/routes?unmapped=true",
		},
	} {
		n += len(paths)
		_, err := w.hidden(method, "{}", paths...)
		bad = errors.Join(bad, err)
	}
	return fmt.Sprintf("404 for %d users, %d requests", len(w.outsiders), n), bad
}

func foreignBodies(w *target) (string, error) {
	v, own := w.victim, w.attacker
	to := func(kind, guid string) string { return fmt.Sprintf(`%q:{"data":{"guid":%q}}`, kind, guid) }
	requests := [][3]string{
		{"POST", "/v3/packages?source_guid=" + v.pkg, `{"relationships":{` + to("app", own.app) + `}}`},
		{"POST", "/v3/droplets?source_guid=" + v.droplet, `{"relationships":{` + to("app", own.app) + `}}`},
		{"PATCH", "/v3/apps/" + own.app + "/relationships/current_droplet", `{"data":{"guid":"` + v.droplet + `"}}`},
		{"POST", "/v3/builds", `{"package":{"guid":"` + v.pkg + `"}}`},
		{"POST", "/v3/packages", `{"type":"bits","relationships":{` + to("app", v.app) + `}}`},
		{"POST", "/v3/deployments", `{"relationships":{` + to("app", v.app) + `}}`},
		{"POST", "/v3/deployments", `{"droplet":{"guid":"` + v.droplet + `"},"relationships":{` + to("app", own.app) + `}}`},
		{"POST", "/v3/apps", `{"name":"x","relationships":{` + to("space", v.space) + `}}`},
		{"POST", "/v3/service_credential_bindings", `{"type":"app","relationships":{` + to("app", own.app) + `,` + to("service_instance", v.service) + `}}`},
		{"POST", "/v3/service_credential_bindings", `{"type":"app","relationships":{` + to("app", v.app) + `,` + to("service_instance", v.provided) + `}}`},
		{"POST", "/v3/service_credential_bindings", `{"type":"key","name":"k","relationships":{` + to("service_instance", v.service) + `}}`},
		{"POST", "/v3/routes/" + own.route + "/destinations", `{"destinations":[{"app":{"guid":"` + v.app + `"}}]}`},
		{"POST", "/v3/apps/" + own.app + "/tasks", `{"droplet_guid":"` + v.droplet + `","command":"cat private.txt"}`},
		{"POST", "/v3/service_instances", `{"type":"user-provided","name":"x","relationships":{` + to("space", v.space) + `}}`},
		{"POST", "/v3/roles", `{"type":"space_developer","relationships":{` + to("user", noSuch) + `,` + to("space", v.space) + `}}`},
	}
	var bad error
	var codes []int
	for _, c := range w.outsiders {
		for _, r := range requests {
			a, err := w.ask(c.token, r[0], r[1], r[2])
			if err != nil {
				return "", err
			}
			codes = append(codes, a.status)
			refused := a.status == http.StatusUnprocessableEntity || a.status == http.StatusNotFound || a.status == http.StatusForbidden && c.name != "SpaceDeveloper-there"
			if !refused || strings.Contains(a.body, canary) {
				bad = errors.Join(bad, fmt.Errorf("%s %s as %s: %s", r[0], r[1], c.name, a))
			}
		}
	}
	return statuses(codes) + fmt.Sprintf(" for %d users, %d requests", len(w.outsiders), len(requests)), bad
}

func foreignUploads(w *target) (string, error) {
	v := w.victim
	return w.hidden(http.MethodPost, "{}", "/v3/packages/"+v.pkg+"/upload", "/v3/droplets/"+v.droplet+"/upload", "/dew/v1/spaces/"+v.space+"/buildpacks")
}

// sshCode returns a one-time code of a user.
func (w *target) sshCode(c caller) (string, error) {
	a, err := w.ask(c.token, http.MethodPost, "/dew/v1/ssh-code", "")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`"code":\s*"([^"]+)"`).FindStringSubmatch(a.body)
	if found == nil {
		return "", fmt.Errorf("no code: %s", a)
	}
	return found[1], nil
}

// shell logs in over SSH.
func (w *target) shell(user, code string) error {
	c, err := ssh.Dial("tcp", w.SSH, &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.Password(code)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}) //nolint:gosec // a server of this test
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Run("true")
}

func foreignSSH(w *target) (string, error) {
	for _, c := range w.outsiders {
		code, err := w.sshCode(c)
		if err != nil {
			return "", err
		}
		if err := w.shell("cf:"+w.victim.process+"/0", code); err == nil {
			return "logged in", fmt.Errorf("%s has a shell", c.name)
		}
	}
	code, err := w.sshCode(w.insiders["SpaceDeveloper"])
	if err == nil {
		err = w.shell("cf:"+w.victim.process+"/0", code)
	}
	if err != nil {
		return "", fmt.Errorf("the developer of the space has no shell, so the probe proves nothing: %w", err)
	}
	return fmt.Sprintf("refused for %d users", len(w.outsiders)), nil
}

func foreignMails(w *target) (string, error) {
	v := w.victim
	var codes []int
	for _, c := range append([]caller{w.insiders["SpaceDeveloper"]}, w.outsiders...) {
		for _, r := range [][2]string{
			{"POST", "/notify/users/" + noSuch},
			{"POST", "/notify/spaces/" + v.space},
			{"POST", "/notify/organizations/" + v.org},
			{"POST", "/notify/everyone"},
			{"POST", "/notify/emails"},
			{"PUT", "/notify/notifications"},
			{"GET", "/notify/notifications"},
			{"POST", "/notify/templates"},
			{"GET", "/dew/v1/inbox"},
			{"GET", "/dew/v1/mails"},
		} {
			a, err := w.ask(c.token, r[0], r[1], `{"kind_id":"x","text":"x","to":"x@example.com"}`)
			if err != nil {
				return "", err
			}
			codes = append(codes, a.status)
			if a.status != http.StatusForbidden {
				return a.String(), fmt.Errorf("%s %s as %s", r[0], r[1], c.name)
			}
		}
	}
	return statuses(codes), nil
}

func insideSecrets(w *target) (string, error) {
	v := w.victim
	var codes []int
	for _, role := range []string{"SpaceAuditor", "SpaceManager", "OrgAuditor", "BillingManager"} {
		for _, p := range []string{
			"/v3/apps/" + v.app + "/env", "/v3/apps/" + v.app + "/environment_variables", "/v3/apps/" + v.app + "/manifest", "/v3/service_credential_bindings/" + v.key + "/details",
			"/v3/service_credential_bindings/" + v.binding + "/details", "/v3/service_instances/" + v.provided + "/credentials", "/v3/packages/" + v.pkg + "/download", "/stream/v1/services/" + v.service,
		} {
			a, err := w.ask(w.insiders[role].token, http.MethodGet, p, "")
			if err != nil {
				return "", err
			}
			codes = append(codes, a.status)
			if a.status != http.StatusForbidden && a.status != http.StatusNotFound || strings.Contains(a.body, canary) {
				return a.String(), fmt.Errorf("%s reads %s", role, p)
			}
		}
	}
	a, err := w.ask(w.insiders["SpaceDeveloper"].token, http.MethodGet, "/v3/apps/"+v.app+"/env", "")
	if err != nil || !strings.Contains(a.body, canary) {
		return a.String(), fmt.Errorf("the developer does not see the secret, so the probe proves nothing: %w", err)
	}
	return statuses(codes), nil
}

func insideChanges(w *target) (string, error) {
	v := w.victim
	var codes []int
	for _, role := range []string{"SpaceAuditor", "SpaceManager"} {
		for _, r := range [][2]string{
			{"PATCH", "/v3/apps/" + v.app},
			{"DELETE", "/v3/apps/" + v.app},
			{"PATCH", "/v3/apps/" + v.app + "/environment_variables"},
			{"POST", "/v3/apps/" + v.app + "/actions/stop"},
			{"POST", "/v3/apps/" + v.app + "/tasks"},
			{"POST", "/v3/processes/" + v.process + "/actions/scale"},
			{"DELETE", "/v3/droplets/" + v.droplet},
			{"POST", "/v3/packages/" + v.pkg + "/upload"},
			{"DELETE", "/v3/service_instances/" + v.service},
			{"POST", "/v3/spaces/" + v.space + "/actions/apply_manifest"},
		} {
			a, err := w.ask(w.insiders[role].token, r[0], r[1], "{}")
			if err != nil {
				return "", err
			}
			codes = append(codes, a.status)
			if a.status != http.StatusForbidden {
				return a.String(), fmt.Errorf("%s: %s %s", role, r[0], r[1])
			}
		}
	}
	return statuses(codes), nil
}

// endpoints returns the endpoints of the documentation and the groups that can call them.
func endpoints() ([][3]string, error) {
	b, err := os.ReadFile("../docs/api.md")
	if err != nil {
		return nil, err
	}
	var out [][3]string
	for _, m := range regexp.MustCompile("(?m)^\\| `(GET|POST|PUT|PATCH|DELETE) (/[^`]*)` \\| (.*) \\|$").FindAllStringSubmatch(string(b), -1) {
		if strings.HasPrefix(m[2], "/uaa") {
			continue
		}
		out = append(out, [3]string{m[1], regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(m[2], noSuch), m[3]})
	}
	const least = 200
	if len(out) < least {
		return nil, fmt.Errorf("docs/api.md has %d endpoints, want at least %d", len(out), least)
	}
	return out, nil
}

func adminEndpoints(w *target) (string, error) {
	all, err := endpoints()
	if err != nil {
		return "", err
	}
	n := 0
	for _, e := range all {
		if !strings.HasPrefix(e[2], "administrators") && e[2] != "readers of all" {
			continue
		}
		n++
		a, err := w.ask(w.insiders["SpaceDeveloper"].token, e[0], e[1], "{}")
		if err != nil {
			return "", err
		}
		if a.status != http.StatusForbidden && a.status != http.StatusNotFound {
			return a.String(), fmt.Errorf("%s %s as a developer", e[0], e[1])
		}
	}
	return fmt.Sprintf("403 or 404 for %d endpoints", n), nil
}

func everyEndpoint(w *target) (string, error) {
	all, err := endpoints()
	if err != nil {
		return "", err
	}
	n := 0
	for _, e := range all {
		if e[2] == "anyone" || strings.Contains(e[2], "without one") {
			continue
		}
		n++
		a, err := w.ask("", e[0], e[1], "{}")
		if err != nil {
			return "", err
		}
		if a.status != http.StatusUnauthorized {
			return a.String(), fmt.Errorf("%s %s without a token", e[0], e[1])
		}
	}
	return fmt.Sprintf("401 for %d endpoints", n), nil
}

func ownRole(w *target) (string, error) {
	var codes []int
	for _, c := range w.outsiders {
		me, err := w.ask(c.token, http.MethodGet, "/uaa/userinfo", "")
		if err != nil {
			return "", err
		}
		id := regexp.MustCompile(`"user_id":"([^"]+)"`).FindStringSubmatch(me.body)
		if id == nil {
			return me.String(), errors.New("no user id")
		}
		for _, body := range []string{
			fmt.Sprintf(`{"type":"space_developer","relationships":{"user":{"data":{"guid":%q}},"space":{"data":{"guid":%q}}}}`, id[1], w.victim.space),
			fmt.Sprintf(`{"type":"organization_manager","relationships":{"user":{"data":{"guid":%q}},"organization":{"data":{"guid":%q}}}}`, id[1], w.victim.org),
		} {
			a, err := w.ask(c.token, http.MethodPost, "/v3/roles", body)
			if err != nil {
				return "", err
			}
			codes = append(codes, a.status)
			if a.status != http.StatusForbidden && a.status != http.StatusUnprocessableEntity {
				return a.String(), fmt.Errorf("%s has a role", c.name)
			}
		}
	}
	return statuses(codes), nil
}
