package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services/bindingfiles"
)

// Volumes are the volumes of servers: a PersistentVolumeClaim for the data, and a Service
// for the address.
type Volumes struct {
	Client       kubernetes.Interface
	Namespace    string
	Daemon       string
	StorageClass string // empty: the default one of the cluster
}

// volumeName returns the name of the PersistentVolumeClaim and of the Service of a server.
func volumeName(server string) string { return "dew-" + server }

// fieldManager is the owner of the fields that dewd sets.
const fieldManager = "dewd"

// Put creates the volume of a server and its address, or makes the volume larger.
func (v Volumes) Put(ctx context.Context, want runtime.Volume) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	how := metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)}
	name := volumeName(want.Server)
	claim, err := json.Marshal(v.claim(want))
	if err != nil {
		return netip.Addr{}, err
	}
	if _, err := v.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Patch(ctx, name, types.ApplyPatchType, claim, how); err != nil {
		return netip.Addr{}, fmt.Errorf("cannot create or enlarge the PersistentVolumeClaim %s: %w", name, err)
	}
	service, err := json.Marshal(v.service(want))
	if err != nil {
		return netip.Addr{}, err
	}
	got, err := v.Client.CoreV1().Services(v.Namespace).Patch(ctx, name, types.ApplyPatchType, service, how)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cannot create the Service %s: %w", name, err)
	}
	addr, err := netip.ParseAddr(got.Spec.ClusterIP)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the Service %s has no address: %w", name, err)
	}
	return addr, nil
}

// meta returns the metadata of an object of a server.
func (v Volumes) meta(server string) map[string]any {
	return map[string]any{"name": volumeName(server), "labels": v.labels(server)}
}

func (v Volumes) labels(server string) map[string]string {
	return map[string]string{labelDaemon: v.Daemon, labelProcess: labelValue(server), labelKind: string(runtime.KindService)}
}

func (v Volumes) claim(want runtime.Volume) map[string]any {
	spec := map[string]any{
		"accessModes": []string{string(corev1.ReadWriteOnce)},
		"resources":   map[string]any{"requests": map[string]any{"storage": ptr.To(quantity(want.Bytes)).String()}},
	}
	if v.StorageClass != "" {
		spec["storageClassName"] = v.StorageClass
	}
	return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": v.meta(want.Server), "spec": spec}
}

// service returns the Service of a server. It does not depend on dewd: a client connects
// as soon as the server listens.
func (v Volumes) service(want runtime.Volume) map[string]any {
	spec := map[string]any{
		"selector": v.labels(want.Server), "publishNotReadyAddresses": true,
		"ports": []any{map[string]any{"name": "server", "port": want.Port, "protocol": string(corev1.ProtocolTCP)}},
	}
	if want.Address.IsValid() {
		spec["clusterIP"] = want.Address.String()
	}
	return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": v.meta(want.Server), "spec": spec}
}

// Remove removes the volume of a server with its data, and its address.
func (v Volumes) Remove(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := volumeName(server)
	err := errors.Join(
		found(v.Client.CoreV1().Services(v.Namespace).Delete(ctx, name, metav1.DeleteOptions{})),
		found(v.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Delete(ctx, name, metav1.DeleteOptions{})))
	if err != nil {
		return fmt.Errorf("cannot delete the volume %s: %w", name, err)
	}
	return nil
}

// found returns an error, unless it says that the object does not exist.
func found(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// dataVolume is the name of the volume of a server in its Pod.
const dataVolume = "data"

// claimOf returns the mount with the data of a server.
func claimOf(s runtime.Spec) (stack.Mount, bool) {
	i := slices.IndexFunc(s.Mounts, func(m stack.Mount) bool { return m.Type == stack.MountVolume })
	if i < 0 {
		return stack.Mount{}, false
	}
	return s.Mounts[i], true
}

// filesDir returns the folder of the secret files of an instance: service bindings, or the
// configuration of a server.
func filesDir(s runtime.Spec) string {
	for _, m := range s.Mounts {
		if m.Type == "bind" {
			return m.Path
		}
	}
	return bindingfiles.Dir
}

// withConfiguration reads the folder with the configuration of a server, which contains
// secrets. The agent creates the files in the Pod.
func withConfiguration(s runtime.Spec) (runtime.Spec, error) {
	for _, m := range s.Mounts {
		if m.Type != "bind" {
			continue
		}
		if s.Kind != runtime.KindService || s.Files != nil || !slices.Contains(m.Options, "ro") {
			return s, &runtime.StartError{Reason: "it needs folders of this machine, which Pods do not have (use a service broker or a user-provided service instance)"}
		}
		files := map[string]string{}
		entries, err := os.ReadDir(m.Source)
		for _, f := range entries {
			var data []byte
			if err == nil && f.Type().IsRegular() {
				data, err = os.ReadFile(filepath.Join(m.Source, f.Name()))
				files[f.Name()] = string(data)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, fmt.Errorf("cannot read the configuration of the server: %w", err)
		}
		s.Files = files
	}
	return s, nil
}
