// Package install installs dewd in a cluster, and removes it.
//
//	manifests.go  the objects of an installation   apply.go      creates and changes them
//	wait.go       waits until dewd is ready        uninstall.go  deletes everything
package install

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	manifests "github.com/dewrun/dew/dist/kubernetes"
)

// The names of the objects.
const (
	daemonName     = "dewd"
	registrySecret = "dew-registry"
	agentSecret    = "dew-agent"
	claimName      = "root-dewd-0"
	agentService   = "dewd-agents"
	ownerLabel     = "app.kubernetes.io/managed-by"
	owner          = "dew"
)

// Settings are the choices of an installation.
type Settings struct {
	Namespace    string
	Image        string            // of dewd
	Env          map[string]string // environment variables of dewd besides those of the manifests
	PullSecret   string            // name of an existing Secret for the registry; empty: none
	Registry     []byte            // docker config file with the login to the registry; empty: none
	StorageClass string            // empty: the default one of the cluster
	StorageSize  string            // such as 10Gi
	LoadBalancer bool
	TCPPorts     []int // of TCP routes, in the Services for clients
}

// Object is an object of Kubernetes as JSON.
type Object map[string]any

func (o Object) kind() string { return text(o, "kind") }
func (o Object) name() string { return text(o, "metadata", "name") }

// String returns the kind and the name of the object, as kubectl prints them.
func (o Object) String() string { return strings.ToLower(o.kind()) + "/" + o.name() }

// path returns the path of the object in the API.
func (o Object) path() string {
	version, kind := text(o, "apiVersion"), strings.ToLower(o.kind())
	root := "/apis/" + version
	if !strings.Contains(version, "/") {
		root = "/api/" + version
	}
	if kind != "namespace" {
		root += "/namespaces/" + text(o, "metadata", "namespace")
	}
	return root + "/" + kind + "s/" + o.name()
}

// at returns the value below keys, or nil.
func at(v any, keys ...string) any {
	for _, key := range keys {
		switch m := v.(type) {
		case Object:
			v = m[key]
		case map[string]any:
			v = m[key]
		default:
			return nil
		}
	}
	return v
}

func text(v any, keys ...string) string {
	s, _ := at(v, keys...).(string)
	return s
}

func child(v any, keys ...string) map[string]any {
	m, _ := at(v, keys...).(map[string]any)
	return m
}

// Objects returns the objects of an installation, in the order of their creation.
func Objects(s Settings) ([]Object, error) {
	files := []string{"base/namespace.yaml", "base/rbac.yaml", "base/service.yaml", "base/statefulset.yaml"}
	if s.LoadBalancer {
		files = append(files, "loadbalancer/service.yaml")
	}
	var all []Object
	for _, file := range files {
		some, err := read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(s.Registry) > 0 {
		all = slices.Insert(all, 1, Object{
			"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
			"metadata": map[string]any{"name": registrySecret, "labels": map[string]any{"app.kubernetes.io/name": owner}},
			"data":     map[string]any{".dockerconfigjson": base64.StdEncoding.EncodeToString(s.Registry)},
		})
		s.PullSecret = registrySecret
	}
	for _, o := range all {
		if err := s.apply(o); err != nil {
			return nil, fmt.Errorf("cannot set up %s: %w", o, err)
		}
	}
	return all, nil
}

func read(file string) ([]Object, error) {
	data, err := fs.ReadFile(manifests.Files, file)
	if err != nil {
		return nil, err
	}
	var all []Object
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path.Base(file), err)
		}
		all = append(all, o)
	}
	return all, nil
}

// apply puts the settings into an object.
func (s Settings) apply(o Object) error {
	switch o.kind() {
	case "Namespace":
		child(o, "metadata")["name"] = s.Namespace
		return nil
	case "RoleBinding":
		subjects, _ := o["subjects"].([]any)
		for _, one := range subjects {
			child(one)["namespace"] = s.Namespace
		}
	case "Service":
		if o.name() != agentService {
			s.addPorts(o)
		}
	case "StatefulSet":
		if err := s.applyDaemon(o); err != nil {
			return err
		}
	}
	child(o, "metadata")["namespace"] = s.Namespace
	return nil
}

// addPorts adds the ports of TCP routes to a Service.
func (s Settings) addPorts(o Object) {
	spec := child(o, "spec")
	ports, _ := spec["ports"].([]any)
	for _, n := range s.TCPPorts {
		ports = append(ports, map[string]any{"name": "tcp-" + strconv.Itoa(n), "port": n, "targetPort": n})
	}
	spec["ports"] = ports
}

// applyDaemon puts the settings into the StatefulSet.
func (s Settings) applyDaemon(o Object) error {
	spec := child(o, "spec", "template", "spec")
	containers, _ := spec["containers"].([]any)
	claims, _ := at(o, "spec", "volumeClaimTemplates").([]any)
	if len(containers) != 1 || len(claims) != 1 {
		return errors.New("the manifest must have one container and one volume")
	}
	dewd := child(containers[0])
	dewd["image"] = s.Image
	env := maps.Clone(s.Env)
	if env == nil {
		env = map[string]string{}
	}
	if s.PullSecret != "" {
		spec["imagePullSecrets"] = []any{map[string]any{"name": s.PullSecret}}
		env["DEW_PULL_SECRET"] = s.PullSecret
		setSecret(spec, s.PullSecret)
	}
	dewd["env"] = withEnv(dewd["env"], env)
	claim := child(claims[0], "spec")
	if s.StorageClass != "" {
		claim["storageClassName"] = s.StorageClass
	}
	if s.StorageSize != "" {
		child(claim, "resources", "requests")["storage"] = s.StorageSize
	}
	return nil
}

// setSecret makes dewd log in to the registry with a Secret.
func setSecret(spec map[string]any, name string) {
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		if text(v, "name") == "registry" {
			child(v, "secret")["secretName"] = name
		}
	}
}

// withEnv returns a list of environment variables with others added or replaced.
func withEnv(list any, more map[string]string) []any {
	old, _ := list.([]any)
	var out []any
	for _, v := range old {
		if _, replaced := more[text(v, "name")]; !replaced {
			out = append(out, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		out = append(out, map[string]any{"name": name, "value": more[name]})
	}
	return out
}

// YAML returns objects as a file for kubectl apply -f.
func YAML(all []Object) ([]byte, error) {
	var b bytes.Buffer
	for i, o := range all {
		if i > 0 {
			b.WriteString("---\n")
		}
		data, err := yaml.MarshalWithOptions(map[string]any(o), yaml.IndentSequence(false))
		if err != nil {
			return nil, err
		}
		b.Write(data)
	}
	return b.Bytes(), nil
}
