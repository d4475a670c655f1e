// Package preflight checks whether a cluster meets the requirements of dewd, and says what
// to do about what is missing.
package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"

	"github.com/dewrun/dew/api/v3"
)

// limit is the time limit of one check.
const limit = 15 * time.Second

// The levels of a Finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "FAIL"
)

// minMinor is the oldest version 1.x that has the functions dewd uses: limits for whole
// Pods, and restart policies of containers.
const minMinor = 35

// Subject is the cluster to check, and for what.
type Subject struct {
	Client    kubernetes.Interface
	Server    string // address of the API server
	Namespace string
	Registry  func(context.Context) error // whether images can be pushed; nil: not checked
	Name      string                      // of the registry
	Arch      string                      // architecture of the programs
	// Install checks what the user needs who installs dewd. Otherwise the checks are those
	// of dewd itself.
	Install      bool
	StorageClass string // empty: the default one of the cluster
}

func good(format string, args ...any) v3.Finding {
	return v3.Finding{Level: levelOK, What: fmt.Sprintf(format, args...)}
}
func warn(what, do string) v3.Finding { return v3.Finding{Level: levelWarn, What: what, Do: do} }
func bad(what, do string) v3.Finding  { return v3.Finding{Level: levelFail, What: what, Do: do} }

// Failed reports whether a check failed.
func Failed(found []v3.Finding) bool {
	return slices.ContainsFunc(found, func(f v3.Finding) bool { return f.Level == levelFail })
}

// check is one check of the cluster.
type check struct {
	name string
	run  func(context.Context) v3.Finding
}

// Examine runs all checks. If the cluster does not answer, it returns only that.
func (s Subject) Examine(ctx context.Context) []v3.Finding {
	checks := []check{{"permissions", s.checkPermissions}, {"namespace", s.checkNamespace}}
	if s.Install {
		checks = append(checks, check{"storage", s.checkStorage}, check{"nodes", s.checkNodes}, check{"network policy", s.checkNetwork})
	}
	if s.Registry != nil {
		checks = append(checks, check{"registry", s.checkRegistry})
	}
	first, answers := s.checkVersion(ctx)
	first.Name = "cluster"
	out := []v3.Finding{first}
	if !answers {
		return out
	}
	for _, c := range checks {
		bounded, cancel := context.WithTimeout(ctx, limit)
		f := c.run(bounded)
		cancel()
		f.Name = c.name
		out = append(out, f)
	}
	return out
}

// checkVersion checks the version of the cluster, and reports whether the cluster answers.
func (s Subject) checkVersion(ctx context.Context) (v3.Finding, bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var info version.Info
	data, err := s.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	if err != nil {
		return bad(fmt.Sprintf("the cluster does not answer at %s: %v", s.Server, err), "check the address and the login in the kubeconfig file: kubectl cluster-info"), false
	}
	return versionRule(info.Major, info.Minor, s.Server), true
}

// versionRule checks the version of the cluster. A provider can add a plus sign.
func versionRule(major, minor, server string) v3.Finding {
	a, aerr := strconv.Atoi(major)
	b, berr := strconv.Atoi(strings.TrimRight(minor, "+"))
	switch {
	case aerr != nil || berr != nil:
		return warn(fmt.Sprintf("cannot read the version %s.%s of the cluster", major, minor), fmt.Sprintf("check that it is 1.%d or newer", minMinor))
	case a < 1 || a == 1 && b < minMinor:
		return bad(fmt.Sprintf("Kubernetes %d.%d at %s is older than 1.%d", a, b, server, minMinor), "upgrade the cluster")
	}
	return good("Kubernetes %d.%d at %s", a, b, server)
}

// Permission is something that a user must be allowed to do in the namespace.
type Permission struct {
	Group, Resource, Name string // a subresource follows a slash, as in pods/status
	Verbs                 []string
}

// Daemon are the permissions of dewd. The Role in the manifests has the same.
var Daemon = []Permission{
	{"", "pods", "", []string{"create", "delete", "list", "patch", "watch"}},
	{"", "pods/status", "", []string{"patch"}},
	{"policy", "poddisruptionbudgets", "", []string{"create", "delete", "list", "patch"}},
	{"", "persistentvolumeclaims", "", []string{"create", "delete", "patch"}},
	{"", "services", "", []string{"create", "delete", "patch"}},
	{"", "secrets", "", []string{"create"}},
	{"", "secrets", "dew-agent", []string{"update"}},
	{"coordination.k8s.io", "leases", "", []string{"create"}},
	{"coordination.k8s.io", "leases", "dewd", []string{"get", "update"}},
}

// installer are the permissions of the user who installs dewd, besides those of dewd:
// Kubernetes lets users grant only permissions that they have.
var installer = []Permission{
	{"", "namespaces", "", []string{"create", "get"}},
	{"", "pods", "", []string{"get"}},
	{"", "serviceaccounts", "", []string{"create", "patch"}},
	{"", "services", "", []string{"create", "patch"}},
	{"apps", "statefulsets", "", []string{"create", "get", "patch"}},
	{"rbac.authorization.k8s.io", "roles", "", []string{"create", "patch"}},
	{"rbac.authorization.k8s.io", "rolebindings", "", []string{"create", "patch"}},
}

func (s Subject) checkPermissions(ctx context.Context) v3.Finding {
	needed := Daemon
	if s.Install {
		needed = slices.Concat(Daemon, installer)
	}
	missing := map[string][]string{}
	for _, p := range needed {
		if p.Resource == "namespaces" && s.exists(ctx) {
			continue
		}
		for _, verb := range p.Verbs {
			ok, err := s.allowed(ctx, p, verb)
			if err != nil {
				return bad("cannot find out the permissions in namespace "+s.Namespace+": "+err.Error(), "check the login in the kubeconfig file")
			}
			if !ok && !slices.Contains(missing[p.Resource], verb) {
				missing[p.Resource] = append(missing[p.Resource], verb)
			}
		}
	}
	if len(missing) == 0 {
		return good("all in namespace %s", s.Namespace)
	}
	var list []string
	for _, resource := range slices.Sorted(maps.Keys(missing)) {
		list = append(list, strings.Join(missing[resource], ", ")+" "+resource)
	}
	do := "ask an administrator of the cluster for these permissions"
	if !s.Install {
		do = "run dew kubernetes install again: it creates the Role of dewd"
	}
	return bad("not allowed in namespace "+s.Namespace+": "+strings.Join(list, "; "), do)
}

// exists reports whether the namespace exists, or the user cannot know that.
func (s Subject) exists(ctx context.Context) bool {
	_, err := s.Client.CoreV1().Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
	return err == nil || apierrors.IsForbidden(err)
}

func (s Subject) allowed(ctx context.Context, p Permission, verb string) (bool, error) {
	namespace := s.Namespace
	if p.Resource == "namespaces" {
		namespace = ""
	}
	resource, sub, _ := strings.Cut(p.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: p.Group, Resource: resource, Subresource: sub, Name: p.Name},
	}}
	answer, err := s.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}

// enforceLabel is the label of a namespace with the level of Pod security that the cluster
// enforces.
const enforceLabel = "pod-security.kubernetes.io/enforce"

func (s Subject) checkNamespace(ctx context.Context) v3.Finding {
	ns, err := s.Client.CoreV1().Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && s.Install:
		return good("%s does not exist: dew kubernetes install creates it", s.Namespace)
	case apierrors.IsNotFound(err):
		return bad("the namespace "+s.Namespace+" does not exist", "create it, or set another one with --namespace")
	case apierrors.IsForbidden(err): // dewd itself has no permission for it
		return good("%s", s.Namespace)
	case err != nil:
		return bad("cannot read the namespace "+s.Namespace+": "+err.Error(), "check the login in the kubeconfig file")
	}
	return namespaceRule(ns)
}

// namespaceRule checks the level of Pod security. dewd and its Pods fit into all levels.
func namespaceRule(ns *corev1.Namespace) v3.Finding {
	switch level := ns.Labels[enforceLabel]; {
	case ns.DeletionTimestamp != nil:
		return bad("Kubernetes is deleting the namespace "+ns.Name, "wait until it is gone, or set another one with --namespace")
	case level == "restricted":
		return good("%s, which enforces Pod security level restricted", ns.Name)
	default:
		return warn(fmt.Sprintf("%s does not enforce the Pod security level restricted", ns.Name), fmt.Sprintf("kubectl label --overwrite namespace %s %s=restricted", ns.Name, enforceLabel))
	}
}

// defaultClass is the annotation of the default StorageClass.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

func (s Subject) checkStorage(ctx context.Context) v3.Finding {
	list, err := s.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return warn("cannot list the StorageClasses: "+err.Error(), "check that there is a default StorageClass, or set one with --storage-class")
	}
	var names []string
	for _, c := range list.Items {
		if s.StorageClass == "" && c.Annotations[defaultClass] == "true" || c.Name == s.StorageClass {
			return good("StorageClass %s", c.Name)
		}
		names = append(names, c.Name)
	}
	known := "the cluster has none"
	if len(names) > 0 {
		known = "the cluster has " + strings.Join(names, ", ")
	}
	if s.StorageClass != "" { // a volume that someone created can have any class
		return warn(fmt.Sprintf("the StorageClass %s does not exist: %s", s.StorageClass, known), "create a PersistentVolume of this class, or set another one with --storage-class")
	}
	return bad("there is no default StorageClass: "+known, "set one with --storage-class")
}

func (s Subject) checkNodes(ctx context.Context) v3.Finding {
	list, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return warn("cannot list the nodes: "+err.Error(), "check that they have the architecture "+s.Arch)
	}
	return nodesRule(list.Items, s.Arch)
}

// nodesRule checks that the programs run on the nodes.
func nodesRule(nodes []corev1.Node, arch string) v3.Finding {
	fit, others := 0, map[string]bool{}
	for i := range nodes {
		if a := nodes[i].Status.NodeInfo.Architecture; a != "" && a != arch {
			others[a] = true
		} else {
			fit++
		}
	}
	list := strings.Join(slices.Sorted(maps.Keys(others)), ", ")
	switch {
	case len(nodes) == 0:
		return bad("the cluster has no nodes", "add a node")
	case fit == 0:
		return bad(fmt.Sprintf("the nodes are %s, but the programs of dew are %s", list, arch), fmt.Sprintf("build them for the nodes: make build-kubernetes ARCH=%s BIN=bin/%s, then use --programs bin/%s", list, list, list))
	case len(others) > 0:
		return warn(fmt.Sprintf("%s of the nodes have %s, but others %s: Pods on those cannot start", count(fit), arch, list), "keep the namespace away from those nodes, or use another cluster")
	}
	return good("%s, %s", count(fit), arch)
}

func count(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}

// enforcers are parts of the names of DaemonSets that enforce network policies.
var enforcers = []string{"calico", "cilium", "antrea", "kube-router", "weave", "ovn", "aws-node", "azure-npm", "canal", "anetd", "kindnet"}

func (s Subject) checkNetwork(ctx context.Context) v3.Finding {
	const do = "if apps of different users share the cluster, use a network plugin that enforces NetworkPolicies"
	list, err := s.Client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return warn("cannot find out whether the cluster enforces NetworkPolicies: "+err.Error(), do)
	}
	for _, d := range list.Items {
		for _, name := range enforcers {
			if strings.Contains(d.Name, name) {
				return good("the network plugin %s can enforce NetworkPolicies", d.Name)
			}
		}
	}
	return warn("no network plugin found that enforces NetworkPolicies", do)
}

func (s Subject) checkRegistry(ctx context.Context) v3.Finding {
	if err := s.Registry(ctx); err != nil {
		return bad(fmt.Sprintf("cannot push images to %s: %v", s.Name, err), "check the name of the registry and the login to it: docker login. For a registry without TLS, use --insecure-registry")
	}
	return good("%s accepts images", s.Name)
}
