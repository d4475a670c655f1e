package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime/kubernetes/lease"
	"github.com/dewrun/dew/runtime/process"
)

// instances selects the Pods of instances.
const instances = "run.dew/daemon=dew"

// graceTime is how long instances have for their exit.
const graceTime = 10 * time.Second

// Uninstall stops dewd and all instances, and deletes everything of an installation. With
// keepData it keeps the volumes of dewd and of databases, the addresses of databases, and
// the namespace because of them.
func (c Cluster) Uninstall(ctx context.Context, namespace string, keepData bool) error {
	foreign, err := c.foreign(ctx, namespace)
	if err != nil {
		return err
	}
	c.Say("Stopping dewd")
	// dewd must not create new instances.
	if err := c.delete(ctx, daemonSet(namespace)); err != nil {
		return err
	}
	if err := c.podsGone(ctx, namespace, "app.kubernetes.io/name=dew,app.kubernetes.io/component=dewd"); err != nil {
		return err
	}
	c.Say("Stopping all instances")
	if err := c.stopInstances(ctx, namespace); err != nil {
		return err
	}
	c.Say("Deleting the objects of dew")
	rest, err := leftovers(namespace, keepData)
	if err != nil {
		return err
	}
	if !keepData {
		databases, err := c.databases(ctx, namespace)
		if err != nil {
			return err
		}
		rest = append(databases, rest...)
	}
	for _, o := range rest {
		if err := c.delete(ctx, o); err != nil {
			return err
		}
	}
	if keepData || foreign {
		return c.gone(ctx, rest)
	}
	ns := Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}
	return errors.Join(c.delete(ctx, ns), c.gone(ctx, []Object{ns}))
}

// stopInstances deletes the Pods of all instances, with what dewd created for them. It
// deletes one by one: the permission to delete a whole collection is another one.
func (c Cluster) stopInstances(ctx context.Context, namespace string) error {
	all := metav1.ListOptions{LabelSelector: instances}
	pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, all)
	if err != nil {
		return fmt.Errorf("cannot list the Pods of instances: %w", err)
	}
	grace := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(graceTime / time.Second))}
	for i := range pods.Items {
		err := c.Client.CoreV1().Pods(namespace).Delete(ctx, pods.Items[i].Name, grace)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete the Pod of an instance: %w", err)
		}
	}
	budgets, err := c.Client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, all)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot list the PodDisruptionBudgets of instances: %w", err)
	}
	if err == nil {
		for i := range budgets.Items {
			err := c.Client.PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, budgets.Items[i].Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("cannot delete a PodDisruptionBudget of instances: %w", err)
			}
		}
	}
	return c.podsGone(ctx, namespace, instances)
}

// databases returns the volumes and the Services of databases.
func (c Cluster) databases(ctx context.Context, namespace string) ([]Object, error) {
	all := metav1.ListOptions{LabelSelector: instances}
	services, err := c.Client.CoreV1().Services(namespace).List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("cannot list the Services of databases: %w", err)
	}
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("cannot list the volumes of databases: %w", err)
	}
	var out []Object
	for i := range services.Items {
		out = append(out, object(namespace, "v1", "Service", services.Items[i].Name))
	}
	for i := range claims.Items {
		out = append(out, object(namespace, "v1", "PersistentVolumeClaim", claims.Items[i].Name))
	}
	return out, nil
}

func object(namespace, version, kind, name string) Object {
	return Object{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}}
}

func daemonSet(namespace string) Object {
	return object(namespace, "apps/v1", "StatefulSet", daemonName)
}

// leftovers returns the objects to delete after dewd has stopped: those of the manifests,
// and those that dewd creates.
func leftovers(namespace string, keepData bool) ([]Object, error) {
	all, err := Objects(Settings{Namespace: namespace, LoadBalancer: true})
	if err != nil {
		return nil, err
	}
	out := []Object{
		object(namespace, "v1", "Secret", registrySecret), object(namespace, "v1", "Secret", agentSecret), object(namespace, "coordination.k8s.io/v1", "Lease", lease.Name),
	}
	if !keepData {
		out = append(out, object(namespace, "v1", "PersistentVolumeClaim", claimName))
	}
	for _, o := range all {
		if kind := o.kind(); kind != "Namespace" && kind != "StatefulSet" {
			out = append(out, o)
		}
	}
	return out, nil
}

// delete deletes an object, if it exists.
func (c Cluster) delete(ctx context.Context, o Object) error {
	err := c.Client.CoreV1().RESTClient().Delete().AbsPath(o.path()).
		Body(&metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete %s: %w", o, err)
	}
	return nil
}

// podsGone waits until no Pod has the labels.
func (c Cluster) podsGone(ctx context.Context, namespace, selector string) error {
	for {
		pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return fmt.Errorf("cannot list the Pods of namespace %s: %w", namespace, err)
		}
		if len(pods.Items) == 0 {
			return nil
		}
		if process.Sleep(ctx, pollTime) != nil {
			return fmt.Errorf("the Pod %s has not stopped in time (kubectl --namespace %s describe pod %s shows why)", pods.Items[0].Name, namespace, pods.Items[0].Name)
		}
	}
}

// gone waits until objects do not exist any more.
func (c Cluster) gone(ctx context.Context, all []Object) error {
	for _, o := range all {
		for {
			err := c.Client.CoreV1().RESTClient().Get().AbsPath(o.path()).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil && ctx.Err() == nil && !apierrors.IsForbidden(err) {
				return fmt.Errorf("cannot check that %s is deleted: %w", o, err)
			}
			if process.Sleep(ctx, pollTime) != nil {
				return fmt.Errorf("%s was not deleted in time", o)
			}
		}
	}
	return nil
}
