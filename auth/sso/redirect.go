package sso

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// redirectAllowed reports whether a client with these registered URIs can have codes
// sent to a URI. The URI is a registered one or below it. Scheme, host and port are the
// same. A registered URI with a query allows only itself.
func redirectAllowed(registered []string, asked string) bool {
	to, err := url.Parse(asked)
	if err != nil || to.Scheme == "" || to.Host == "" || to.User != nil || to.Fragment != "" || strings.HasSuffix(asked, "#") {
		return false
	}
	if to.Scheme != "http" && to.Scheme != "https" || strings.ContainsAny(asked, "\\\r\n\t ") || dotted(to) {
		return false
	}
	return slices.ContainsFunc(registered, func(r string) bool {
		if r == asked {
			return true
		}
		from, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(r, "*"), "*"))
		if err != nil || from.RawQuery != "" {
			return false
		}
		return strings.EqualFold(from.Scheme, to.Scheme) && strings.EqualFold(from.Host, to.Host) && below(from.EscapedPath(), to.EscapedPath())
	})
}

// dotted reports whether a path can mean another one: a browser or server resolves its
// dots, also the escaped ones.
func dotted(u *url.URL) bool {
	clean := path.Clean("/" + u.Path)
	return u.Path != "" && clean != strings.TrimSuffix(u.Path, "/") && u.Path != "/" || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// below reports whether a path is another one or in its folder.
func below(folder, name string) bool {
	folder = strings.TrimSuffix(folder, "/")
	return name == folder || strings.HasPrefix(name, folder+"/")
}
