package cftest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// clientFields are the fields that the client reads, by the noun of a resource. A field is
// stored with everything in it.
var clientFields = map[string]string{
	"organizations":         "guid name suspended relationships metadata",
	"spaces":                "guid name relationships metadata",
	"roles":                 "guid type relationships",
	"users":                 "guid username presentation_name origin",
	"apps":                  "guid name state lifecycle relationships metadata",
	"packages":              "guid state type created_at data.image relationships",
	"builds":                "guid state error droplet.guid created_at package.guid",
	"droplets":              "guid state created_at stack image buildpacks lifecycle.type relationships",
	"processes":             "guid type command instances memory_in_mb disk_in_mb log_rate_limit_in_bytes_per_second health_check readiness_health_check relationships process_instances",
	"stats":                 "index state type uptime details isolation_segment mem_quota disk_quota log_rate_limit routable usage",
	"sidecars":              "guid name command process_types memory_in_mb",
	"deployments":           "guid state status strategy options new_processes droplet.guid created_at relationships",
	"routes":                "guid url host path port protocol options destinations relationships metadata",
	"destinations":          "destinations",
	"domains":               "guid name internal supported_protocols router_group relationships",
	"audit_events":          "guid created_at type actor.name data",
	"buildpacks":            "guid name stack position enabled locked state filename lifecycle metadata",
	"stacks":                "guid name description state state_reason metadata",
	"feature_flags":         "name enabled",
	"env":                   "environment_variables system_env_json application_env_json running_env_json staging_env_json",
	"environment_variables": "var",
	"jobs":                  "guid state errors warnings",
	"manifest_diff":         "diff",
	"resource_matches":      "resources",
	"current_droplet":       "data.guid",
	"policies":              "total_policies policies",
	"root":                  "links.cloud_controller_v3.meta.version links.login.href links.uaa.href links.log_cache.href links.app_ssh links.logging.href links.network_policy_v1.href links.routing.href cf_on_k8s",
	"login":                 "prompts app.version",
	"token":                 "access_token refresh_token token_type",
	"Users":                 "id userName origin",
	"clients":               "client_id authorized_grant_types authorities scope",
	"info":                  "version",
}

// Noun returns the noun of the resource that a path returns. It is empty if the client
// does not read the response.
func Noun(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	segs := strings.Split(strings.Trim(path, "/"), "/")
	last, before := segs[len(segs)-1], ""
	if len(segs) > 1 {
		before = segs[len(segs)-2]
	}
	switch {
	case path == "/":
		return "root"
	case method == http.MethodDelete && before != "destinations", last == "apply_manifest":
		return ""
	case before == "actions" && last == "scale":
		return "processes"
	case before == "actions":
		return segs[len(segs)-4]
	case last == "upload":
		return segs[len(segs)-3]
	case clientFields[last] != "" || last == "read" || before == "":
		return last
	}
	return before
}

// Reduce returns the parts of a response that the client reads.
func Reduce(method, path string, status int, contentType string, raw []byte) (any, error) {
	noun := Noun(method, path)
	if len(bytes.TrimSpace(raw)) == 0 || noun == "" && status < http.StatusBadRequest {
		return nil, nil
	}
	if !strings.Contains(contentType, "json") {
		return string(raw), nil
	}
	v, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%s %s answers what is not JSON: %w", method, path, err)
	}
	if status >= http.StatusBadRequest {
		return v, nil
	}
	if noun == "read" {
		return reduceLines(path, v)
	}
	o, ok := v.(map[string]any)
	if !ok {
		return v, nil
	}
	if token, ok := o["access_token"].(string); ok {
		kept := pick(noun, o)
		kept["claims"] = Claims(token)
		return kept, nil
	}
	items, list := o["resources"].([]any)
	if !list || noun == "resource_matches" {
		return pick(noun, o), nil
	}
	out := map[string]any{"resources": each(noun, items)}
	if noun == "audit_events" {
		stableEvents(out["resources"].([]any)) //nolint:forcetypeassert // each gives it
	}
	if p, ok := o["pagination"].(map[string]any); ok {
		out["next"] = p["next"]
	}
	if in, ok := o["included"].(map[string]any); ok {
		kept := map[string]any{}
		for k, vs := range in {
			list, _ := vs.([]any)
			kept[k] = each(k, list)
		}
		out["included"] = kept
	}
	return out, nil
}

// claims are the claims of a token that the client reads.
var claims = []string{"user_name", "user_id", "origin", "client_id", "revocable", "jti"}

// Claims returns the claims of a token that the client reads, or nil if the token is
// invalid.
func Claims(token string) map[string]any {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	v, err := decode(raw)
	all, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil
	}
	out := map[string]any{}
	for _, k := range claims {
		if c, there := all[k]; there {
			out[k] = c
		}
	}
	return out
}

func decode(raw []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return v, dec.Decode(&v)
}

func each(noun string, items []any) []any {
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = item
		if o, ok := item.(map[string]any); ok {
			out[i] = pick(noun, o)
		}
	}
	return out
}

// pick returns the fields of a noun. A noun without a list keeps all fields except
// links and times.
func pick(noun string, o map[string]any) map[string]any {
	out := map[string]any{}
	fields, known := clientFields[noun]
	if !known {
		maps.Copy(out, o)
		for _, k := range []string{"links", "created_at", "updated_at"} {
			delete(out, k)
		}
		return out
	}
	for _, f := range strings.Fields(fields) {
		copyField(out, o, strings.Split(f, "."))
	}
	if noun == "stats" {
		stableStats(out)
	}
	instances, _ := out["process_instances"].([]any)
	for _, i := range instances {
		if o, ok := i.(map[string]any); ok {
			o["since"] = "$number"
			keepTransition(o)
		}
	}
	return out
}

func copyField(out, o map[string]any, path []string) {
	v, there := o[path[0]]
	if !there {
		return
	}
	below, deeper := v.(map[string]any)
	if len(path) == 1 || !deeper {
		out[path[0]] = v
		return
	}
	kept, ok := out[path[0]].(map[string]any)
	if !ok {
		kept = map[string]any{}
		out[path[0]] = kept
	}
	copyField(kept, below, path[1:])
}

// stableStats replaces values that differ from one moment to the next.
func stableStats(stats map[string]any) {
	stats["uptime"] = "$number"
	if u, ok := stats["usage"].(map[string]any); ok {
		for k, v := range u {
			if _, ok := v.(json.Number); ok {
				u[k] = "$number"
			}
		}
		delete(u, "time") // the client does not read it
	}
	keepTransition(stats)
}

// keepTransition records only the transition of an instance that is not running yet, because
// the next read can find it running.
func keepTransition(o map[string]any) {
	coming := map[any]string{"STARTING": "STARTING|RUNNING", "STOPPING": "STOPPING|STARTING|RUNNING"}
	or, ok := coming[o["state"]]
	if !ok {
		return
	}
	for k := range o {
		if k != "index" && k != "type" {
			delete(o, k)
		}
	}
	o["state"] = or
}

// stableEvents sorts the two events of one crash. They have the same time, so their
// order is not defined.
func stableEvents(events []any) {
	for i := range events {
		e, _ := events[i].(map[string]any)
		data, _ := e["data"].(map[string]any)
		if _, crash := data["crash_timestamp"]; !crash {
			continue
		}
		data["crash_timestamp"] = "$number"
		if i == 0 {
			continue
		}
		before, _ := events[i-1].(map[string]any)
		was, _ := before["data"].(map[string]any)
		if was["instance"] == data["instance"] && fmt.Sprint(before["type"]) > fmt.Sprint(e["type"]) {
			events[i-1], events[i] = events[i], events[i-1]
		}
	}
}

// envelopeFields are the only fields of envelopes. With any other field, the client
// refuses the whole response.
var envelopeFields = map[string]bool{
	"timestamp": true, "source_id": true, "instance_id": true, "tags": true, "log": true,
	"deprecated_tags": true, "counter": true, "gauge": true, "timer": true, "event": true,
}

// reduceLines keeps the sources of the newest lines, and the texts of the API's lines.
// The output of apps and its times are not the platform's.
func reduceLines(path string, v any) (any, error) {
	lines, err := ReadLines(v)
	if err != nil || !strings.Contains(path, "limit=1000") {
		return nil, err
	}
	sources, sentences := map[string]bool{}, map[string]bool{}
	for _, l := range lines {
		if strings.HasPrefix(l.Source, "APP/") || l.Source == "RTR" {
			continue
		}
		sources[l.Source] = true
		if l.Source == "API" {
			sentences[l.Text] = true
		}
	}
	return map[string]any{"sources": list(sources), "lines": list(sentences)}, nil
}

func list(set map[string]bool) []any {
	out := []any{}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k)
	}
	return out
}

// Line is a log line as the client shows it.
type Line struct{ Source, Instance, Stream, Text string }

// ReadLines parses a response of log-cache as strictly as the client does.
func ReadLines(v any) ([]Line, error) {
	o, _ := v.(map[string]any)
	batch, _ := o["envelopes"].(map[string]any)
	if len(o) > 1 || len(o) == 1 && batch == nil || len(batch) > 1 {
		return nil, fmt.Errorf("not an answer of log-cache: %v", v)
	}
	items, _ := batch["batch"].([]any)
	var out []Line
	for _, item := range items {
		l, err := readLine(item)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func readLine(item any) (Line, error) {
	e, _ := item.(map[string]any)
	for k := range e {
		if !envelopeFields[k] {
			return Line{}, fmt.Errorf("unknown field %q in an envelope", k)
		}
	}
	tags, _ := e["tags"].(map[string]any)
	for k, v := range tags {
		if _, ok := v.(string); !ok {
			return Line{}, fmt.Errorf("tag %q is no text", k)
		}
	}
	log, _ := e["log"].(map[string]any)
	payload, _ := log["payload"].(string)
	text, err := base64.StdEncoding.DecodeString(payload)
	if err != nil || len(log) > 2 {
		return Line{}, fmt.Errorf("not a log line: %v", log)
	}
	source, _ := tags["source_type"].(string)
	instance, _ := e["instance_id"].(string)
	stream, _ := log["type"].(string)
	return Line{Source: source, Instance: instance, Stream: stream, Text: string(text)}, nil
}

// stablePath replaces the one parameter that differs from one moment to the next.
func stablePath(path string) string {
	before, query, found := strings.Cut(path, "?")
	if !found || !strings.HasPrefix(before, "/api/v1/read/") {
		return path
	}
	values, err := url.ParseQuery(query)
	if err != nil || strings.HasPrefix(values.Get("start_time"), "-") {
		return path
	}
	values.Del("start_time")
	return before + "?" + values.Encode() + "&start_time=$start"
}
