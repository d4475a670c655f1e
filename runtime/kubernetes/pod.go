package kubernetes

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
)

// The labels of Pods. The annotations have the rest of the spec.
const (
	labelDaemon   = "run.dew/daemon"
	labelInstance = "run.dew/instance"
	labelApp      = "run.dew/app"
	labelProcess  = "run.dew/process"
	labelType     = "run.dew/type"
	labelIndex    = "run.dew/index"
	labelKind     = "run.dew/kind"

	// annotationStarted is the time at which the processes were allowed to start.
	annotationStarted = "run.dew/started"

	// kindCrashFiles is the kind of a Pod with the files of a crashed instance.
	kindCrashFiles = "crash-files"
)

// The folders in the containers of a Pod.
const (
	binDir  = "/.dew/bin" // the programs of dew
	runDir  = "/.dew/run" // socket of the agent, output of the processes
	tlsDir  = "/.dew/tls" // keys of the agent
	homeDir = "/home/vcap"
	tmpDir  = "/tmp"

	initProgram        = binDir + "/dew-init"
	podProgram         = binDir + "/dew-pod"
	sftpProgram        = binDir + "/dew-sftp"
	agentContainerName = "agent"
)

// The memory of the agent, and the limit that the kernel enforces for it.
const (
	agentRequest = 16 << 20
	agentLimit   = 64 << 20
)

// podName returns the name of the Pod of an instance.
func podName(id runtime.InstanceID) string { return names.Container(id) }

// podTemplate makes the Pods of an engine.
type podTemplate struct{ *Engine }

// pod returns the Pod of a container. It has no environment and no command of the app.
func (e podTemplate) pod(s runtime.Spec, kind, image string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(s.Instance), Namespace: e.cfg.Namespace,
			Labels: map[string]string{
				labelDaemon: e.cfg.Name, labelInstance: string(s.Instance), labelKind: kind, labelIndex: strconv.Itoa(s.Slot.Index),
				labelApp: labelValue(s.App), labelType: labelValue(s.Type), labelProcess: labelValue(s.Slot.Process),
			},
			Annotations: names.Labels(s, ""),
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ShareProcessNamespace: ptr.To(true),
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(e.grace(s) / time.Second)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), FSGroup: ptr.To(e.cfg.UID), FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Resources:      e.resources(s),
			ReadinessGates: readinessGates(s), Volumes: e.volumes(s), Tolerations: tolerations,
		},
	}
	spread(&p.Spec, s, e.cfg.Name)
	if e.cfg.PullSecret != "" {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: e.cfg.PullSecret}}
	}
	p.Spec.Containers = append(p.Spec.Containers, e.agentContainer(s))
	for _, proc := range s.Processes {
		p.Spec.Containers = append(p.Spec.Containers, e.processContainer(s, proc, image))
	}
	return p
}

// serverGrace is how long a database has to stop when someone else deletes its Pod. It
// writes its data before it exits.
const serverGrace = time.Minute

// grace returns the time between SIGTERM and SIGKILL when someone else deletes the Pod.
func (e *Engine) grace(s runtime.Spec) time.Duration {
	if s.Kind == runtime.KindService {
		return max(e.cfg.GracePeriod, serverGrace)
	}
	return e.cfg.GracePeriod
}

// resources returns the limits of a whole Pod, and what the scheduler reserves for it.
func (e podTemplate) resources(s runtime.Spec) *corev1.ResourceRequirements {
	r := &corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceMemory: quantity(s.Memory + agentLimit + int64(len(s.Processes))*wrapperMemory)},
		Requests: corev1.ResourceList{corev1.ResourceMemory: quantity(s.Memory + agentRequest), corev1.ResourceCPU: cpu(s.Memory+agentRequest, len(s.Processes))},
	}
	if e.cfg.CPU > 0 {
		limit := resource.NewMilliQuantity(e.cfg.CPU, resource.DecimalSI)
		r.Limits[corev1.ResourceCPU] = *limit
		if request := r.Requests[corev1.ResourceCPU]; request.Cmp(*limit) > 0 {
			r.Requests[corev1.ResourceCPU] = *limit
		}
	}
	return r
}

// cpu returns the CPU time that is reserved for processes with an amount of memory: a
// tenth of a core for 1G. Processes that want more than there is get it in this ratio, as
// on one machine.
func cpu(memory int64, processes int) resource.Quantity {
	return *resource.NewMilliQuantity(int64(processes)+memory*100>>30, resource.DecimalSI)
}

// tolerations say how long a Pod stays on a node that does not answer. Without them it
// would be five minutes.
var tolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(30))},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(30))},
}

// spread distributes the instances of a process over nodes and zones. If that is not
// possible, they run anyway. Zones are an affinity, because the scheduler ignores all
// constraints on nodes that do not have the labels of each of them, and the nodes of many
// clusters have no zone.
func spread(p *corev1.PodSpec, s runtime.Spec, daemon string) {
	if s.Kind != runtime.KindInstance {
		return
	}
	same := &metav1.LabelSelector{MatchLabels: map[string]string{labelDaemon: daemon, labelProcess: labelValue(s.Slot.Process)}}
	p.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: same,
	}}
	p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone, LabelSelector: same},
		}},
	}}
}

// labelValue returns a value that Kubernetes accepts, or an empty one.
func labelValue(v string) string {
	ok := len(v) <= 63 && strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == "" &&
		strings.Trim(v, "-_.") == v
	if !ok {
		return ""
	}
	return v
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }

// volumes returns the volumes of a Pod. The files of the app are in one of their own,
// whose size is the disk limit.
func (e podTemplate) volumes(s runtime.Spec) []corev1.Volume {
	empty := func(name string, limit int64) corev1.Volume {
		v := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
		if limit > 0 {
			v.EmptyDir.SizeLimit = ptr.To(quantity(limit))
		}
		return v
	}
	vs := []corev1.Volume{
		empty("dew-bin", 0), empty("dew-run", int64(len(s.Processes))*2*(e.cfg.Backlog+(4<<20))+(16<<20)),
		empty("home", s.Disk), empty("tmp", s.Disk),
		{Name: "dew-tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: e.secretName(), DefaultMode: ptr.To(int32(0o440))}}},
	}
	if m, ok := claimOf(s); ok {
		vs = append(vs, corev1.Volume{Name: dataVolume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volumeName(m.Source)},
		}})
	}
	if s.Files != nil {
		v := empty("bindings", 16<<20)
		v.EmptyDir.Medium = corev1.StorageMediumMemory
		vs = append(vs, v)
	}
	return vs
}

func mount(name, path string, readOnly bool) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly}
}

func (e podTemplate) security(uid int64) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: ptr.To(uid), RunAsGroup: ptr.To(e.cfg.UID), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// agentContainer returns the container of the agent. It is not a native sidecar, because
// Kubernetes would stop it when all processes have exited, even if dewd has not read
// their last lines. Kubernetes restarts it if it is killed.
func (e podTemplate) agentContainer(s runtime.Spec) corev1.Container {
	var execs []string
	for _, p := range s.Processes {
		execs = append(execs, p.Exec)
	}
	// The agent has another user, so that the app cannot read its keys.
	security := e.security(e.cfg.UID + 1)
	security.ReadOnlyRootFilesystem = ptr.To(true)
	return corev1.Container{
		Name: agentContainerName, Image: e.cfg.Image, ImagePullPolicy: corev1.PullIfNotPresent, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Command: []string{"/dew-pod", "agent"},
		Args: []string{
			"--instance", string(s.Instance), "--server", e.cfg.Address, "--server-name", serverName, "--processes", strings.Join(execs, ","),
			"--run", runDir, "--bin", binDir, "--tls", tlsDir, "--programs", "/dew-init,/dew-sftp,/dew-pod",
		},
		Env: []corev1.EnvVar{{Name: "DEW_TOKEN", Value: e.keys.token(s.Instance)}},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: quantity(agentLimit)},
			Requests: corev1.ResourceList{corev1.ResourceMemory: quantity(agentRequest)},
		},
		VolumeMounts:    []corev1.VolumeMount{mount("dew-bin", binDir, false), mount("dew-run", runDir, false), mount("dew-tls", tlsDir, true)},
		SecurityContext: security,
	}
}

// waitForWrapper waits until the agent has copied the wrapper, and becomes it. The
// containers of a Pod start at the same time.
const waitForWrapper = `until [ -x "$0" ]; do sleep 0.01; done; exec "$0" "$@"`

// processContainer returns the container of one process of the app.
func (e podTemplate) processContainer(s runtime.Spec, p runtime.ProcessSpec, image string) corev1.Container {
	folders := []string{homeDir, tmpDir}
	c := corev1.Container{
		Name: p.Exec, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/bin/sh", "-c", waitForWrapper, podProgram},
		Args: []string{
			"wrap", "--process", p.Exec, "--run", runDir, "--home", homeDir, "--folders", strings.Join(folders, ","),
			"--init", initProgram, "--backlog", strconv.FormatInt(e.cfg.Backlog, 10),
		},
		VolumeMounts: []corev1.VolumeMount{
			mount("dew-bin", binDir, true), mount("dew-run", runDir, false), mount("home", homeDir, false), mount("tmp", tmpDir, false),
		},
		SecurityContext: e.security(e.cfg.UID),
	}
	if p.User != nil { // of the image
		c.SecurityContext = e.security(int64(p.User.UID))
		c.SecurityContext.RunAsGroup = ptr.To(int64(p.User.GID))
	}
	if p.Memory > 0 {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: quantity(p.Memory + wrapperMemory)}
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: quantity(p.Memory), corev1.ResourceCPU: cpu(p.Memory, 1)}
		if e.cfg.CPU > 0 {
			c.Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(1, resource.DecimalSI)
		}
	}
	if m, ok := claimOf(s); ok {
		c.VolumeMounts = append(c.VolumeMounts, mount(dataVolume, m.Path, false))
	}
	if s.Files != nil {
		c.VolumeMounts = append(c.VolumeMounts, mount("bindings", filesDir(s), false))
	}
	return c
}

// wrapperMemory is added to the memory limit of a process, because its wrapper has the
// same limit.
const wrapperMemory = 8 << 20

// specOf reads the spec of a Pod.
func specOf(p *corev1.Pod) (runtime.Spec, error) {
	s, err := names.Spec(p.Annotations)
	if err == nil {
		// A time that cannot be parsed is not a reason to give up an instance.
		s.StartedAt, _ = time.Parse(time.RFC3339Nano, p.Annotations[annotationStarted])
	}
	return s, err
}
