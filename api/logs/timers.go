package logs

import (
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// routerSource is the source of the router's access lines.
const routerSource = "RTR"

// timerOf returns the time of the request that an access line of the router is about, as
// Cloud Foundry's router reports it.
func timerOf(form envelopeForm, e *logstream.Envelope) (v3.GatewayEnvelope, bool) {
	if e.Source.Type != routerSource {
		return v3.GatewayEnvelope{}, false
	}
	a, ok := parseAccess(string(e.Text))
	if !ok {
		return v3.GatewayEnvelope{}, false
	}
	out := gatewayEnvelope(form.Present(e.Source))
	out.Timestamp, out.Log = a.start.Add(a.took).UnixNano(), nil
	out.Timer = &v3.Timer{Name: "http", Start: a.start.UnixNano(), Stop: a.start.Add(a.took).UnixNano()}
	delete(out.Tags, "source_type")
	for name, value := range map[string]string{
		"origin": "gorouter", "peer_type": "Server", "method": a.method, "uri": a.uri, "status_code": a.status, "content_length": a.bytes,
		"user_agent": a.agent, "remote_address": a.client, "request_id": a.values["vcap_request_id"], "forwarded": a.values["x_forwarded_for"],
		"routing_instance_id": a.values["instance_id"],
	} {
		if value != "" && value != "-" {
			out.Tags[name] = value
		}
	}
	if index := a.values["app_index"]; index != "" && index != "-" {
		out.InstanceID, out.Tags["instance_id"] = index, index
		out.Tags["instance_index"] = index
	}
	return out, true
}

// accessLine has the parts of an access line that a timer needs.
type accessLine struct {
	start                      time.Time
	took                       time.Duration
	method, uri, status, bytes string
	agent, client              string
	values                     map[string]string
}

// parseAccess reads an access line:
//
//	HOST - [TIME] "METHOD PATH PROTO" STATUS IN OUT "REFERER" "AGENT" "CLIENT" "INSTANCE" KEY:"VALUE" … response_time:SECONDS …
func parseAccess(text string) (a accessLine, ok bool) {
	host, rest, ok := strings.Cut(text, " - [")
	at, rest, ok2 := strings.Cut(rest, "] ")
	start, err := time.Parse(time.RFC3339Nano, at)
	if !ok || !ok2 || err != nil {
		return a, false
	}
	f := fields{rest: rest}
	method, path, ok := strings.Cut(f.next(), " ")
	path, _, ok2 = cutLast(path, " ")
	a = accessLine{start: start, method: method, status: f.next(), values: map[string]string{}}
	f.next() // bytes of the request
	a.bytes = f.next()
	f.next() // referer
	a.agent, a.client = f.next(), f.next()
	f.next() // instance
	for f.rest != "" && !f.bad {
		name, value, found := strings.Cut(f.rest, ":")
		if !found {
			break
		}
		f.rest = value
		a.values[name] = f.next()
	}
	seconds, err := strconv.ParseFloat(a.values["response_time"], 64)
	if !ok || !ok2 || f.bad || err != nil || !(seconds >= 0 && seconds < 1e9) {
		return a, false
	}
	a.uri, a.took = "http://"+host+path, time.Duration(seconds*float64(time.Second))
	return a, true
}

// cutLast cuts at the last separator.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// fields reads the fields of an access line: quoted, or up to the next space.
type fields struct {
	rest string
	bad  bool
}

func (f *fields) next() string {
	if !strings.HasPrefix(f.rest, `"`) {
		var field string
		field, f.rest, _ = strings.Cut(f.rest, " ")
		return field
	}
	quoted, err := strconv.QuotedPrefix(f.rest)
	if err != nil {
		f.bad = true
		return ""
	}
	f.rest = strings.TrimPrefix(f.rest[len(quoted):], " ")
	text, err := strconv.Unquote(quoted)
	f.bad = f.bad || err != nil
	return text
}
