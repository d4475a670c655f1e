package services

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Frozen is what services an app sees.
type Frozen struct {
	JSON  string   // the value of VCAP_SERVICES; empty: nothing is bound
	Names []string // of the service instances, sorted
}

// vcapEntry is one binding in VCAP_SERVICES, in the platform's order.
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

// managedOnly is a null that user-provided services do not have.
type managedOnly struct{}

// MarshalJSON writes null.
func (managedOnly) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// Frozen returns what services an app sees when it is staged now: of every service
// instance the newest binding that works.
func (m *bindings) Frozen(app string) (Frozen, error) {
	bs, err := m.bindings.By("app", app)
	if err != nil {
		return Frozen{}, fmt.Errorf("cannot list bindings of app %s: %w", app, err)
	}
	slices.SortFunc(bs, oldestFirst)
	newest := map[string]string{} // binding by instance
	for _, bi := range bs {
		if bi.Usable() {
			newest[bi.Instance] = bi.GUID
		}
	}
	var f Frozen
	all := map[string][]vcapEntry{}
	for _, bi := range bs {
		if newest[bi.Instance] != bi.GUID {
			continue
		}
		e, err := m.vcap(bi)
		if errors.Is(err, ErrNotFound) {
			continue // the service instance and the binding went just now
		}
		if err != nil {
			return Frozen{}, err
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
		return Frozen{}, fmt.Errorf("cannot write VCAP_SERVICES of app %s: %w", app, err)
	}
	f.JSON = readable(bytes.TrimSpace(text.Bytes()))
	return f, nil
}

// readable undoes the escapes that the store writes for browsers: &, < and > are
// common in addresses and passwords.
func readable(text []byte) string {
	var out bytes.Buffer
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		if i+6 <= len(text) {
			if c, known := map[string]byte{`\u0026`: '&', `\u003c`: '<', `\u003e`: '>'}[string(text[i:i+6])]; known {
				out.WriteByte(c)
				i += 5
				continue
			}
		}
		out.Write(text[i : i+2]) // also an escaped backslash, whose second half begins nothing
		i++
	}
	return out.String()
}

// vcap is what an app sees of a binding.
func (m *bindings) vcap(bi Binding) (vcapEntry, error) {
	i, err := m.instance(bi.Instance)
	if err != nil {
		return vcapEntry{}, err
	}
	e := vcapEntry{
		Label: string(UserProvided), Name: i.Name, Tags: i.Tags,
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
	if e.VolumeMounts, err = mounts(bi.VolumeMounts); err != nil {
		return e, err
	}
	if i.Type == Managed {
		p, err := m.plan(i.Plan)
		if err != nil {
			return e, err
		}
		of, err := m.offering(p.Offering)
		if err != nil {
			return e, err
		}
		e.Label, e.Plan, e.Provider = of.Name, p.Name, &managedOnly{}
		e.Tags = merged(of.Tags, i.Tags)
	}
	if e.Tags == nil {
		e.Tags = []string{}
	}
	return e, nil
}

// mounts leaves of volume mounts what an app may know.
func mounts(raw json.RawMessage) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	if len(raw) == 0 {
		return out, nil
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("cannot read volume mounts: %w", err)
	}
	for _, m := range all {
		known := map[string]json.RawMessage{}
		for _, k := range []string{"container_dir", "mode", "device_type"} {
			if v, has := m[k]; has {
				known[k] = v
			}
		}
		one, err := json.Marshal(known)
		if err != nil {
			return nil, fmt.Errorf("cannot write volume mounts: %w", err)
		}
		out = append(out, one)
	}
	return out, nil
}

// merged is both lists without repetitions.
func merged(a, b []string) (all []string) {
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
