package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// Only the objects of databases are deleted.
func TestDatabases(t *testing.T) {
	own := map[string]string{"run.dew/daemon": "dew"}
	c := Cluster{Client: fake.NewClientset(
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "dew-1", Namespace: "dew", Labels: own}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "dew"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "dew-1", Namespace: "dew", Labels: own}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "dew-2", Namespace: "elsewhere", Labels: own}},
	)}
	found, err := c.databases(t.Context(), "dew")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, o := range found {
		paths = append(paths, o.path())
	}
	want := []string{"/api/v1/namespaces/dew/services/dew-1", "/api/v1/namespaces/dew/persistentvolumeclaims/dew-1"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// Only the objects of instances are deleted.
func TestStopInstances(t *testing.T) {
	own := map[string]string{"run.dew/daemon": "dew"}
	c := Cluster{Client: fake.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dew-1", Namespace: "dew", Labels: own}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "dew"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dew-2", Namespace: "elsewhere", Labels: own}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "dew-1", Namespace: "dew", Labels: own}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "dew"}},
	)}
	if err := c.stopInstances(t.Context(), "dew"); err != nil {
		t.Fatal(err)
	}
	pods, err := c.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 2 {
		t.Errorf("%d Pods are left, %v, want those of others", len(pods.Items), err)
	}
	budgets, err := c.Client.PolicyV1().PodDisruptionBudgets("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(budgets.Items) != 1 || budgets.Items[0].Name != "other" {
		t.Errorf("budgets left = %v, %v, want that of others", budgets.Items, err)
	}
}
