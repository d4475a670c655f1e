package droplet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
)

// Bindings are the service bindings of an app, stored in its droplet at staging.
type Bindings struct {
	JSON  string   `json:"json,omitempty"`  // the value of VCAP_SERVICES; empty: none
	Names []string `json:"names,omitempty"` // names of the service instances
	Files bool     `json:"-"`               // the app reads files and not VCAP_SERVICES
}

// String leaves out the credentials, so that printing a droplet does not reveal them.
func (b Bindings) String() string { return "bindings to [" + strings.Join(b.Names, " ") + "]" }

// Variable returns the value of VCAP_SERVICES.
func (b Bindings) Variable() string { return cmp.Or(b.JSON, "{}") }

// maxBindings is the maximum size of VCAP_SERVICES. The kernel refuses to start a
// program with a variable of more than 128 KiB, including its name.
const maxBindings = 128<<10 - 100

// Check refuses bindings that cannot be passed to a process.
func (b Bindings) Check() error {
	if len(b.JSON) > maxBindings && !b.Files {
		return fmt.Errorf("the credentials of all services of the app have %s, but VCAP_SERVICES can have at most %s: unbind some of %s",
			archive.Size(int64(len(b.JSON))), archive.Size(maxBindings), strings.Join(b.Names, ", "))
	}
	var services map[string]json.RawMessage
	if b.JSON != "" && json.Unmarshal([]byte(b.JSON), &services) != nil {
		return errors.New("VCAP_SERVICES of the app is not a JSON object") // the error of the parser would quote credentials
	}
	return nil
}

// stagingInput is the input of an app for its staging, except its bits.
type stagingInput struct {
	env      map[string]string
	bindings Bindings
}

// stagingInput reads the input for the staging of an app, once for each build. The
// droplet stores the same input that the buildpacks get. The variables of the staging
// environment group belong to env; those of the app override them.
func (b *Builds) stagingInput(app string) (g stagingInput, err error) {
	if g.env, err = b.o.Env(app); err != nil {
		return g, err
	}
	g.bindings, err = b.currentBindings(app)
	return g, err
}

// currentBindings returns the present service bindings of an app.
func (b *Builds) currentBindings(app string) (Bindings, error) {
	if b.o.Bindings == nil {
		return Bindings{}, nil
	}
	v, err := b.o.Bindings(app)
	if err == nil {
		err = v.Check()
	}
	if err != nil {
		return Bindings{}, fmt.Errorf("cannot read the service bindings: %w", err)
	}
	return v, nil
}
