package kubernetes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dewrun/dew/runtime"
)

// The limits and requests of a Pod are never below those of its containers: Kubernetes
// would refuse it.
func TestResources(t *testing.T) {
	const mib = 1 << 20
	for _, cpu := range []int64{0, 10, 1500} {
		for _, memory := range [][]int64{{16 * mib}, {64 * mib, 32 * mib}, {1 * mib, 1 * mib, 1 * mib}, {4096 * mib, 16 * mib, 33 * mib}} {
			s := runtime.Spec{Kind: runtime.KindInstance}
			for i, m := range memory {
				s.Memory += m
				p := runtime.ProcessSpec{Exec: runtime.MainExec, Memory: m}
				if i > 0 {
					p.Exec = runtime.SidecarExec(i - 1)
				}
				s.Processes = append(s.Processes, p)
			}
			e := &Engine{cfg: Config{CPU: cpu, Namespace: "dew", Name: "dew"}}
			p := podTemplate{e}.pod(s, "instance", "stack")
			for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
				var requests, limits int64
				for _, c := range p.Spec.Containers {
					requests += c.Resources.Requests.Name(name, "").MilliValue()
					limits = max(limits, c.Resources.Limits.Name(name, "").MilliValue())
				}
				whole := p.Spec.Resources
				if got := whole.Requests.Name(name, "").MilliValue(); got < requests {
					t.Errorf("cpu %d, memory %v: the Pod requests %d of %s, its containers %d", cpu, memory, got, name, requests)
				}
				limit, ok := whole.Limits[name]
				if ok && (limit.MilliValue() < limits || limit.Cmp(whole.Requests[name]) < 0) {
					t.Errorf("cpu %d, memory %v: the Pod is limited to %s of %s", cpu, memory, &limit, name)
				}
				if ok != (name == corev1.ResourceMemory || cpu > 0) {
					t.Errorf("cpu %d: the Pod has a limit of %s: %t", cpu, name, ok)
				}
			}
		}
	}
}

// Instances are spread over nodes in clusters without zones: every node has the labels of
// all constraints. Other Pods are not spread.
func TestSpreadKeys(t *testing.T) {
	var p, build corev1.PodSpec
	spread(&p, runtime.Spec{Kind: runtime.KindInstance, Slot: runtime.SlotID{Process: "web"}}, "dew")
	if c := p.TopologySpreadConstraints; len(c) != 1 || c[0].TopologyKey != corev1.LabelHostname {
		t.Errorf("constraints = %v, want one with the name of the node", c)
	}
	if a := p.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution; len(a) != 1 || a[0].PodAffinityTerm.TopologyKey != corev1.LabelTopologyZone {
		t.Errorf("preferred anti-affinity = %v, want one with the zone", a)
	}
	spread(&build, runtime.Spec{Kind: runtime.KindStaging}, "dew")
	if build.TopologySpreadConstraints != nil || build.Affinity != nil {
		t.Errorf("a build is spread: %+v", build)
	}
}
