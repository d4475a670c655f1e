package install

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Cluster installs dewd in a cluster.
type Cluster struct {
	Client kubernetes.Interface
	// Say prints the progress.
	Say func(format string, args ...any)
}

// Apply creates the objects of an installation, or changes them. It leaves the labels of a
// namespace that someone else created as they are.
func (c Cluster) Apply(ctx context.Context, all []Object) error {
	for _, o := range all {
		if o.kind() == "Namespace" {
			foreign, err := c.foreign(ctx, o.name())
			if err != nil {
				return err
			}
			if foreign {
				c.Say("Using the existing namespace %s", o.name())
				continue
			}
		}
		if err := c.apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// foreign reports whether a namespace exists that dew did not create.
func (c Cluster) foreign(ctx context.Context, name string) (bool, error) {
	ns, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if apierrors.IsForbidden(err) { // a user who can change only this namespace
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read namespace %s: %w", name, err)
	}
	if ns.DeletionTimestamp != nil {
		return false, fmt.Errorf("namespace %s: Kubernetes is deleting it (wait until it is gone, then try again)", name)
	}
	return ns.Labels[ownerLabel] != owner, nil
}

// apply applies one object on the server. It replaces what others set in the same fields.
func (c Cluster) apply(ctx context.Context, o Object) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	err = c.Client.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(o.path()).
		Param("fieldManager", owner).Param("force", "true").Body(body).Do(ctx).Error()
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cannot create %s: %w (ask an administrator of the cluster for this permission; dew kubernetes check lists all that are missing)", o, err)
	case apierrors.IsInvalid(err) && o.kind() == "StatefulSet":
		return fmt.Errorf("cannot change %s: %w (Kubernetes does not change the volume of an existing StatefulSet: repeat the --storage-size and --storage-class of the first installation)", o, err)
	default:
		return fmt.Errorf("cannot create %s: %w", o, err)
	}
}
