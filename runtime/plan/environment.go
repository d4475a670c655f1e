package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/runtime"
)

// DefaultPort is the default port of an app.
const DefaultPort = 8080

// Paths inside a container, as on the platform.
const (
	homeDir = "/home/vcap/app"
	tmpDir  = "/home/vcap/tmp"
	depsDir = "/home/vcap/deps"
	appUser = "vcap"
)

// anyHost is the address that an app should listen on to be reachable.
const anyHost = "0.0.0.0"

// openFiles is the limit in VCAP_APPLICATION.
const openFiles = 16384

// vcapApplication is VCAP_APPLICATION, with the keys that apps have on the platform.
type vcapApplication struct {
	ApplicationID      string             `json:"application_id"`
	ApplicationName    string             `json:"application_name"`
	ApplicationURIs    []string           `json:"application_uris"`
	ApplicationVersion string             `json:"application_version"`
	CFAPI              string             `json:"cf_api"`
	Host               string             `json:"host"`
	InstanceID         runtime.InstanceID `json:"instance_id"`
	InstanceIndex      int                `json:"instance_index"`
	Limits             vcapLimits         `json:"limits"`
	Name               string             `json:"name"`
	OrganizationID     string             `json:"organization_id"`
	OrganizationName   string             `json:"organization_name"`
	Port               int                `json:"port"`
	ProcessID          string             `json:"process_id"`
	ProcessType        string             `json:"process_type"`
	SpaceID            string             `json:"space_id"`
	SpaceName          string             `json:"space_name"`
	Start              string             `json:"start"`
	URIs               []string           `json:"uris"`
	Users              []string           `json:"users"`
	Version            string             `json:"version"`
}

type vcapLimits struct {
	Disk int `json:"disk"`
	FDs  int `json:"fds"`
	Mem  int `json:"mem"`
}

// portPair is one entry of CF_INSTANCE_PORTS. Connections to instances are opened
// inside their own network, so both numbers are the same.
type portPair struct {
	External int `json:"external"`
	Internal int `json:"internal"`
}

// identity is the data about itself that an instance receives at its start.
type identity struct {
	id        runtime.InstanceID
	index     int
	address   netip.Addr
	publicURL string
	start     time.Time
}

// instanceEnvironment returns the environment of one process; mem is its share in MB.
// The app's own variables override the defaults, but not the platform's variables. An
// app can set its PATH, but not its PORT.
func instanceEnvironment(d Desired, me identity, mem int) ([]string, error) {
	env := d.ownVariables()
	fixed, err := platformVariables(d, me, mem)
	if err != nil {
		return nil, err
	}
	if d.Droplet.Run != nil {
		maps.DeleteFunc(fixed, isBuildpackVariable)
	}
	maps.Copy(env, fixed)
	return variablesOf(env), nil
}

// ownVariables returns the variables that the platform does not fix: the defaults, or
// the image's, and the app's own. Later ones override earlier ones.
func (d Desired) ownVariables() map[string]string {
	env := map[string]string{
		"LANG": "en_US.UTF-8",
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	if d.Droplet.Run != nil {
		env = imageVariables(*d.Droplet.Run)
	}
	maps.Copy(env, d.App.Env) // includes the variables of the running environment variable group
	return env
}

func platformVariables(d Desired, me identity, mem int) (map[string]string, error) {
	ports := d.ports()
	application, err := json.Marshal(instanceApplication(d, me, mem))
	if err != nil {
		return nil, fmt.Errorf("cannot encode VCAP_APPLICATION: %w", err)
	}
	pairs := make([]portPair, 0, len(ports))
	for _, p := range ports {
		pairs = append(pairs, portPair{External: p, Internal: p})
	}
	instancePorts, err := json.Marshal(pairs)
	if err != nil {
		return nil, fmt.Errorf("cannot encode CF_INSTANCE_PORTS: %w", err)
	}
	port, index, addr := strconv.Itoa(ports[0]), strconv.Itoa(me.index), me.address.String()
	return d.withServices(map[string]string{
		"HOME": homeDir, "PWD": homeDir, "TMPDIR": tmpDir, "DEPS_DIR": depsDir, "USER": appUser,
		"PORT": port, "VCAP_APP_HOST": anyHost, "VCAP_APP_PORT": port,
		"VCAP_APPLICATION": string(application),
		"MEMORY_LIMIT":     strconv.Itoa(mem) + "m",
		"CF_INSTANCE_GUID": string(me.id), "INSTANCE_GUID": string(me.id),
		"CF_INSTANCE_INDEX": index, "INSTANCE_INDEX": index,
		"CF_INSTANCE_IP": addr, "CF_INSTANCE_INTERNAL_IP": addr,
		"CF_INSTANCE_PORT": port, "CF_INSTANCE_PORTS": string(instancePorts),
		"CF_INSTANCE_ADDR":     net.JoinHostPort(addr, port),
		certs.InstanceVariable: certs.InstanceDir,
	}), nil
}

func instanceApplication(d Desired, me identity, mem int) vcapApplication {
	return vcapApplication{
		ApplicationID: d.App.GUID, ApplicationName: d.App.Name,
		ApplicationURIs: d.uris, ApplicationVersion: d.Process.Version,
		CFAPI: me.publicURL, Host: anyHost,
		InstanceID: me.id, InstanceIndex: me.index,
		Limits:         vcapLimits{Disk: d.Process.DiskMB, FDs: openFiles, Mem: mem},
		Name:           d.App.Name,
		OrganizationID: d.org.GUID, OrganizationName: d.org.Name,
		Port:      d.ports()[0],
		ProcessID: d.Process.GUID, ProcessType: d.Process.Type,
		SpaceID: d.App.Space, SpaceName: d.space.Name,
		Start: me.start.UTC().Format(runtime.StartFormat),
		URIs:  d.uris, Version: d.Process.Version,
	}
}
