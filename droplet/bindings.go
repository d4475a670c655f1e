package droplet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bindings are the services that an app sees, as they were frozen into its droplet.
type Bindings struct {
	JSON  string   `json:"json,omitempty"`  // the value of VCAP_SERVICES; empty: none
	Names []string `json:"names,omitempty"` // of the service instances
}

// String leaves the credentials out: whoever prints a droplet prints none.
func (b Bindings) String() string { return "bindings to [" + strings.Join(b.Names, " ") + "]" }

// Variable is the value of VCAP_SERVICES.
func (b Bindings) Variable() string { return cmp.Or(b.JSON, "{}") }

// maxBindings is what fits into a variable: the kernel refuses to start a program
// with one of more than 128 KiB, its name included.
const maxBindings = 128<<10 - 100

// Check refuses what no process could be given.
func (b Bindings) Check() error {
	if len(b.JSON) > maxBindings {
		return fmt.Errorf("the credentials of all services of the app are %s, and VCAP_SERVICES takes %s: unbind some of %s",
			inBytes(int64(len(b.JSON))), inBytes(maxBindings), strings.Join(b.Names, ", "))
	}
	var services map[string]json.RawMessage
	if b.JSON != "" && json.Unmarshal([]byte(b.JSON), &services) != nil {
		return errors.New("VCAP_SERVICES of the app is no JSON object") // the reason would quote it
	}
	return nil
}

// stagingInput is what an app gives its staging beside its bits.
type stagingInput struct {
	env      map[string]string
	bindings Bindings
}

// stagingInput reads what staging an app sees, once for each build: what the buildpacks
// were given is what the droplet keeps. The variables of the group of all stagings
// belong into env, below those of the app.
func (b *Builds) stagingInput(app string) (g stagingInput, err error) {
	if g.env, err = b.o.Env(app); err != nil {
		return g, err
	}
	g.bindings, err = b.currentBindings(app)
	return g, err
}

// currentBindings are the bindings of an app as they are now.
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
