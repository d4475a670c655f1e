//go:build k8stest

package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// startRounds is how often each side of BenchmarkStart starts.
const startRounds = 15

// BenchmarkStart compares the start of an instance with one sidecar with a bare Pod with
// two containers of the same image and a volume for the files of the app, in alternating
// rounds. A start ends when both commands run.
func BenchmarkStart(b *testing.B) {
	w := newClusterWorld(b)
	w.open()
	w.startOnce(b, 0) // pulls the images
	w.startBare(b, 1)
	var dew, bare, reported []time.Duration
	for i := range startRounds {
		dew = append(dew, w.startOnce(b, 2*i+2))
		run, seen := w.startBare(b, 2*i+3)
		bare, reported = append(bare, run), append(reported, seen)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(dew).Seconds()*1000, "dew-ms")
	b.ReportMetric(median(bare).Seconds()*1000, "bare-ms")
	b.ReportMetric(median(reported).Seconds()*1000, "bare-reported-ms")
	b.ReportMetric(float64(median(dew))/float64(median(bare)), "ratio")
	b.ReportMetric(float64(median(dew))/float64(median(reported)), "ratio-reported")
	b.Logf("dew %v\nbare %v\nreported %v", dew, bare, reported)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// startOnce starts an instance with a sidecar and deletes it.
func (w *world) startOnce(b *testing.B, n int) time.Duration {
	began := time.Now()
	c := w.start(fmt.Sprintf("exec sleep 1000%d", n), fmt.Sprintf("exec sleep 2000%d", n))
	b.Helper()
	awaitCommands(b, n)
	took := time.Since(began)
	if err := c.Delete(b.Context()); err != nil {
		b.Fatal(err)
	}
	return took
}

// awaitCommands waits until both commands of round n run.
func awaitCommands(b *testing.B, n int) {
	b.Helper()
	main, side := fmt.Appendf(nil, "sleep\x001000%d\x00", n), fmt.Appendf(nil, "sleep\x002000%d\x00", n)
	testkit.Eventually(b, "both commands run", func() error {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return testkit.Finally(err)
		}
		found := 0
		for _, file := range files {
			line, err := os.ReadFile(file)
			if err == nil && (bytes.Equal(line, main) || bytes.Equal(line, side)) {
				found++
			}
		}
		if found < 2 {
			return fmt.Errorf("%d run", found)
		}
		return nil
	})
}

// startBare starts a Pod with two containers and deletes it. It returns when both
// commands ran, and when Kubernetes reported it.
func (w *world) startBare(b *testing.B, n int) (run, reported time.Duration) {
	b.Helper()
	pods := w.client.CoreV1().Pods(w.namespace)
	security, mounts := podTemplate{w.engine}.security(2000), []corev1.VolumeMount{mount("home", homeDir, false)}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bare-%d", n)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ShareProcessNamespace: ptr.To(true), AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{
				{Name: runtime.MainExec, Image: w.stack, Command: []string{"sleep", fmt.Sprintf("1000%d", n)}, SecurityContext: security, VolumeMounts: mounts},
				{Name: "side", Image: w.stack, Command: []string{"sleep", fmt.Sprintf("2000%d", n)}, SecurityContext: security, VolumeMounts: mounts},
			},
			Volumes: []corev1.Volume{{Name: "home", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	began := time.Now()
	if _, err := pods.Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	awaitCommands(b, n)
	run = time.Since(began)
	testkit.Eventually(b, "Kubernetes reports both containers", func() error {
		p, err := pods.Get(b.Context(), p.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = errors.New("it is " + string(p.Status.Phase))
		}
		return err
	})
	reported = time.Since(began)
	if err := pods.Delete(b.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		b.Fatal(err)
	}
	return run, reported
}
