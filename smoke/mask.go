package smoke

import (
	"context"
	"os"
	"regexp"
	"strings"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

const masked = "***"

// minSecret is the minimum length of a secret that is searched in texts. Shorter ones
// occur everywhere by chance.
const minSecret = 6

var (
	secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|credential|private|auth|(^|[^a-z])key|apikey|_key|dsn|signature|cookie`)
	// A password inside of an address: scheme://user:password@host.
	urlPassword = regexp.MustCompile(`(://[^/\s:@"']*:)([^@\s"']+)(@)`)
)

// masker hides secrets. It collects them from environments, and recognizes passwords in
// URLs.
type masker struct{ secrets []string }

// env returns an environment without secrets, and remembers the secrets.
func (m *masker) env(e v3.Env) v3.Env {
	out := v3.Env{
		Staging: m.vars(e.Staging), Running: m.vars(e.Running), Environment: m.vars(e.Environment), Application: e.Application,
		System: map[string]any{},
	}
	for name, v := range e.System {
		out.System[name] = m.value(name, v, false)
	}
	return out
}

func (m *masker) vars(all map[string]string) map[string]string {
	out := make(map[string]string, len(all))
	for name, v := range all {
		out[name] = m.variable(name, v)
	}
	return out
}

// variable returns the value of one variable without secrets.
func (m *masker) variable(name, value string) string {
	if value != "" && secretName.MatchString(name) {
		m.learn(value)
		return masked
	}
	return m.text(value)
}

// value hides the secrets in a tree. All values under credentials are secrets.
func (m *masker) value(name string, v any, secret bool) any {
	secret = secret || name == "credentials"
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, one := range v {
			out[k] = m.value(k, one, secret)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = m.value(name, one, secret)
		}
		return out
	case string:
		return m.leaf(name, v, secret)
	}
	if secret {
		return masked
	}
	return v
}

// leaf hides the secrets in a text. Values of credentials such as hosts are hidden here,
// but not in other texts, because logs would become unreadable.
func (m *masker) leaf(name, v string, secret bool) string {
	for _, found := range urlPassword.FindAllStringSubmatch(v, -1) {
		m.learn(found[2])
	}
	if secretName.MatchString(name) {
		m.learn(v)
		return masked
	}
	if secret {
		return masked
	}
	return m.text(v)
}

// learnEvidence collects the secrets of the apps of a folder, from its manifests and from
// the environments that the daemon sets. It skips sources that cannot be read, because
// the report has no data from them either.
func (m *masker) learnEvidence(ctx context.Context, f Folder, in SpaceClient) {
	for _, file := range f.Manifests {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if parsed, _, err := app.ParseManifest(text, nil); err == nil {
			m.manifest(&parsed)
		}
	}
	if in.Client == nil {
		return
	}
	apps, err := in.Client.Apps().List(ctx)
	if err != nil {
		return
	}
	for _, a := range apps {
		if env, err := in.Client.Apps().Env(ctx, a.GUID); err == nil {
			m.env(env)
		}
	}
}

// manifest hides the secrets in the environments of a manifest.
func (m *masker) manifest(of *app.Manifest) {
	for i := range of.Applications {
		for key, v := range of.Applications[i].Env {
			if v != nil {
				hidden := m.variable(key, *v)
				of.Applications[i].Env[key] = &hidden
			}
		}
	}
}

func (m *masker) learn(secret string) {
	if len(secret) >= minSecret {
		m.secrets = append(m.secrets, secret)
	}
}

// text returns a text without the known secrets.
func (m *masker) text(s string) string {
	for _, secret := range m.secrets {
		s = strings.ReplaceAll(s, secret, masked)
	}
	return urlPassword.ReplaceAllString(s, "${1}"+masked+"${3}")
}
