package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	kubecli "github.com/dewrun/dew/cli/kubernetes"
)

// The flags of an installation become environment variables of dewd, which accepts them.
func TestDaemonEnv(t *testing.T) {
	o := kubecli.Options{Registry: "registry.example.com:5000/dew", Domain: "dew.localhost", Timeout: time.Minute}
	for _, tt := range []struct {
		name   string
		change func(*kubecli.Options)
		want   map[string]string
		err    string
	}{
		{"defaults", func(*kubecli.Options) {}, map[string]string{"DEW_REGISTRY": "registry.example.com:5000/dew", "DEW_DOMAIN": "dew.localhost"}, ""},
		{"a domain", func(o *kubecli.Options) { o.Domain, o.Insecure = "apps.example.com", true }, map[string]string{
			"DEW_REGISTRY": "registry.example.com:5000/dew", "DEW_DOMAIN": "apps.example.com", "DEW_PUBLIC_URL": "https://api.apps.example.com", "DEW_INSECURE_REGISTRY": "registry.example.com:5000",
		}, ""},
		{"a flag of dewd", func(o *kubecli.Options) { o.Set = []string{"log-retention=1G", "sticky-cookies=A,B"} }, map[string]string{
			"DEW_REGISTRY": "registry.example.com:5000/dew", "DEW_DOMAIN": "dew.localhost", "DEW_LOG_RETENTION": "1G", "DEW_STICKY_COOKIES": "A,B",
		}, ""},
		{"an unknown flag", func(o *kubecli.Options) { o.Set = []string{"log-retentoin=1G"} }, nil, "log-retentoin=1G: no such flag"},
		{"a wrong value", func(o *kubecli.Options) { o.Set = []string{"log-retention=much"} }, nil, "not a size such as 512M or 2G"},
		{"a value out of range", func(o *kubecli.Options) { o.Set = []string{"log-retention=1K"} }, nil, "1K is less than 1M"},
		{"a flag of the manifests", func(o *kubecli.Options) { o.Set = []string{"engine=containerd"} }, nil, "engine has its own flag or a fixed value"},
		{"a wrong domain", func(o *kubecli.Options) { o.Domain = "Apps" }, nil, `"Apps" is not a valid domain`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := o
			tt.change(&o)
			got, err := daemonEnv(o)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error = %v, want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A dewd without Kubernetes says so, for every command that needs it.
func TestBuiltWithoutKubernetes(t *testing.T) {
	c := defaultConfig()
	c.Root, c.Run, c.Cluster.Engine = t.TempDir(), t.TempDir(), "kubernetes"
	found := c.examineSelf(t.Context())
	if f := found[0]; f.Level != "FAIL" || !strings.Contains(f.What, "built without Kubernetes") {
		t.Errorf("doctor = %+v, want that dewd has no Kubernetes", f)
	}
	for _, f := range found {
		if f.Name == "containerd" || f.Name == "cgroups" || f.Name == "user" {
			t.Errorf("doctor checks the machine: %+v", f)
		}
	}
	i, err := installation(kubecli.Options{Registry: "r", Domain: "dew.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context(), kubecli.Check); err == nil || !strings.Contains(err.Error(), "make build-kubernetes") {
		t.Errorf("error = %v, want how to build dewd", err)
	}
}
