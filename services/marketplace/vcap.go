package marketplace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/services"
)

// AppServices returns the service data for an app that is staged now. It has the newest
// usable binding of every service instance.
func (m *bindings) AppServices(app string) (services.AppServices, error) {
	bs, err := m.bindings.By("app", app)
	if err != nil {
		return services.AppServices{}, fmt.Errorf("cannot list bindings of app %s: %w", app, err)
	}
	slices.SortFunc(bs, oldestFirst)
	newest := map[string]string{} // binding by instance
	for _, bi := range bs {
		if bi.Usable() {
			newest[bi.Instance] = bi.GUID
		}
	}
	var f services.AppServices
	all := map[string][]vcapEntry{}
	for _, bi := range bs {
		if newest[bi.Instance] != bi.GUID {
			continue
		}
		e, err := m.vcap(bi)
		if errors.Is(err, services.ErrNotFound) {
			continue // the service instance and the binding were just deleted
		}
		if err != nil {
			return services.AppServices{}, err
		}
		all[e.Label] = append(all[e.Label], e)
		f.Names = append(f.Names, e.InstanceName)
	}
	if len(all) == 0 {
		return f, nil
	}
	slices.Sort(f.Names)
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(all); err != nil {
		return services.AppServices{}, fmt.Errorf("cannot encode VCAP_SERVICES of app %s: %w", app, err)
	}
	f.JSON = services.ReadableJSON(bytes.TrimSpace(text.Bytes()))
	return f, nil
}

// vcap returns the VCAP_SERVICES entry of a binding.
func (m *bindings) vcap(bi services.Binding) (vcapEntry, error) {
	i, err := m.instance(bi.Instance)
	if err != nil {
		return vcapEntry{}, err
	}
	e := vcapEntry{
		Label: string(services.UserProvided), Name: i.Name, Tags: i.Tags,
		InstanceGUID: i.GUID, InstanceName: i.Name, BindingGUID: bi.GUID, Credentials: bi.Credentials,
	}
	if bi.Name != "" {
		e.Name, e.BindingName = bi.Name, &bi.Name
	}
	if bi.SyslogDrain != "" {
		e.SyslogDrain = &bi.SyslogDrain
	}
	if len(e.Credentials) == 0 {
		e.Credentials = json.RawMessage("{}")
	}
	if e.VolumeMounts, err = services.AppVolumeMounts(bi.VolumeMounts); err != nil {
		return e, err
	}
	if i.Type == services.Managed {
		p, err := m.plan(i.Plan)
		if err != nil {
			return e, err
		}
		of, err := m.offering(p.Offering)
		if err != nil {
			return e, err
		}
		e.Label, e.Plan, e.Provider = of.Name, p.Name, &managedOnly{}
		e.Tags = services.MergeTags(of.Tags, i.Tags)
	}
	if e.Tags == nil {
		e.Tags = []string{}
	}
	return e, nil
}

// vcapEntry is one binding in VCAP_SERVICES, with keys in Cloud Foundry's order.
type vcapEntry struct {
	Label        string            `json:"label"`
	Provider     *managedOnly      `json:"provider,omitempty"`
	Plan         string            `json:"plan,omitempty"`
	Name         string            `json:"name"`
	Tags         []string          `json:"tags"`
	InstanceGUID string            `json:"instance_guid"`
	InstanceName string            `json:"instance_name"`
	BindingGUID  string            `json:"binding_guid"`
	BindingName  *string           `json:"binding_name"`
	Credentials  json.RawMessage   `json:"credentials"`
	SyslogDrain  *string           `json:"syslog_drain_url"`
	VolumeMounts []json.RawMessage `json:"volume_mounts"`
}

// managedOnly is a null value that user-provided services do not have.
type managedOnly struct{}

// MarshalJSON writes null.
func (managedOnly) MarshalJSON() ([]byte, error) { return []byte("null"), nil }
