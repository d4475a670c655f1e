package services

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/drain"
)

// maxText is the maximum length of a broker's text for users, in bytes.
const maxText = 8 << 10

// CheckRequires checks that a binding returns only data that its offering declared with
// "requires".
func (b BindingData) CheckRequires(requires []string) error {
	what := ""
	switch {
	case b.SyslogDrain != "" && !slices.Contains(requires, requiresSyslog):
		return &BrokerError{Orphan: true, Description: "The service is attempting to stream logs from your application, but is not registered as a logging service. Please contact the service provider."}
	case b.RouteService != "" && !slices.Contains(requires, RequiresRoute):
		what = "route service"
	case len(b.VolumeMounts) > 2 && string(b.VolumeMounts) != "null" && !slices.Contains(requires, requiresVolume):
		what = "volume mount service"
	default:
		return nil
	}
	return &BrokerError{Orphan: true, Description: "The service is not registered as a " + what + ". Please contact the service provider."}
}

// Shorten truncates a broker's text for users to maxText.
func Shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := s[:maxText]
	for !utf8.ValidString(cut) && len(cut) > maxText-utf8.UTFMax {
		cut = cut[:len(cut)-1]
	}
	return cut + "...This message has been truncated due to size."
}

// Limits of Cloud Foundry.
const (
	MaxName = 255
	maxTags = 2048 // characters of all tags together
	MaxURL  = 2048
)

// The permissions that an offering can require.
const (
	requiresSyslog = "syslog_drain"
	RequiresRoute  = "route_forwarding"
	requiresVolume = "volume_mount"
)

// CheckName checks the name of a service instance or broker.
func CheckName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return NewInvalid("name", "Name can't be blank")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return NewInvalid("name", "Name must be valid UTF-8 without control characters")
	case utf8.RuneCountInString(name) > MaxName:
		return NewInvalid("name", "You have requested an invalid service instance name. Names are limited to %d characters.", MaxName)
	}
	return nil
}

// CheckTags checks the tags of a service instance.
func CheckTags(name string, tags []string) error {
	if utf8.RuneCountInString(strings.Join(tags, "")) > maxTags {
		return NewInvalid("tags", "Combined length of tags for service %s must be %d characters or less.", name, maxTags)
	}
	return nil
}

// DrainSchemes is the message that names the allowed URLs of log drains.
const DrainSchemes = "must be a URL with the scheme " + drain.Schemes

// CheckDrain checks the URL of a log drain.
func CheckDrain(address string) error {
	if address != "" && drain.CheckURL(address) != nil {
		return NewInvalid("syslog_drain_url", "Syslog drain url %s", DrainSchemes)
	}
	return nil
}

// CheckRouteService checks the URL of a route service.
func CheckRouteService(service string) error {
	if service == "" {
		return nil
	}
	u, err := url.Parse(service)
	switch {
	case err != nil || u.Hostname() == "" || strings.HasPrefix(u.Host, ".") || len(service) > MaxURL:
		return NewInvalid("route_service_url", "Route service url must be a valid URI")
	case u.Scheme != "https":
		return NewInvalid("route_service_url", "Route service url must be https")
	}
	return nil
}

// IsRefusal reports whether err is an error that a user can fix.
func IsRefusal(err error) bool { return isA[*Invalid](err) || isA[*Refused](err) }

func isA[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

// AvailableIn reports whether apps of a space can be bound to the instance.
func (i Instance) AvailableIn(space string) bool {
	return i.Space == space || slices.Contains(i.SharedWith, space)
}

// DefaultMaxPolling limits operations of plans without a maximum polling duration.
const DefaultMaxPolling = 7 * 24 * time.Hour

// In reports whether a plan is available in a space of an org.
func (v Visibility) In(org, space string) bool {
	switch v.Type {
	case Public:
		return true
	case Organization:
		return org != "" && slices.Contains(v.Orgs, org)
	case SpaceOnly:
		return space != "" && v.Space == space
	case Admin:
	}
	return false
}

// FilterSpaces are the spaces that a filter names, and the spaces of the orgs that it
// names.
type FilterSpaces struct{ Spaces, InOrgs []app.Space }

// AvailableIn reports whether a plan is available in one of the spaces or orgs of a
// filter. A public plan is available everywhere.
func (p Plan) AvailableIn(f PlanFilter, at FilterSpaces) bool {
	if p.Visibility.Type == Public {
		return true
	}
	in := func(s app.Space) bool { return p.Visibility.In(s.Org, s.GUID) }
	inOrg := func(org string) bool { return p.Visibility.In(org, "") }
	return (len(f.Orgs) == 0 || slices.ContainsFunc(f.Orgs, inOrg) || slices.ContainsFunc(at.InOrgs, in)) &&
		(len(f.Spaces) == 0 || slices.ContainsFunc(at.Spaces, in))
}

// CheckObject checks that raw is a JSON object of limited size. It returns nil for an
// empty value and for null.
func CheckObject(key string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > maxObject {
		return nil, NewInvalid(key, "%s must have at most %d bytes of JSON, not %d", key, maxObject, len(raw))
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, NewInvalid(key, "%s must be a JSON object", key)
	}
	return raw, nil
}

// maxObject limits parameters and credentials, in bytes.
const maxObject = 1 << 20

// CheckBrokerURL checks the URL of a service broker.
func CheckBrokerURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || len(s) > MaxURL:
		return NewInvalid("url", "must be a valid url")
	case u.User != nil:
		return NewInvalid("url", "must not contain authentication")
	}
	return nil
}
