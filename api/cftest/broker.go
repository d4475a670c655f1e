package cftest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dewrun/dew/services/servicestest"
)

// NewBroker returns a broker with a catalog from a folder, for a script and its replay.
func NewBroker(dir, catalog string) (*servicestest.Broker, error) {
	b, err := os.ReadFile(filepath.Join(dir, catalog+".json"))
	if err != nil {
		return nil, fmt.Errorf("cannot read a catalog: %w", err)
	}
	return servicestest.New(string(b)), nil
}

// SetBehaviour changes the behaviour of a broker. "broker1 offers newer" changes its catalog.
// "broker1 provision" takes "fails" (it reports the failure later), "later" (it never
// finishes), "ends" (it finishes pending operations) or "obeys".
func SetBehaviour(brokers []*servicestest.Broker, dir, what string) error {
	words := strings.Fields(what)
	if len(words) != 3 {
		return fmt.Errorf("%q is not understood", what)
	}
	n, err := strconv.Atoi(strings.TrimPrefix(words[0], "broker"))
	if err != nil || n < 1 || n > len(brokers) {
		return fmt.Errorf("%q: there is no such broker", what)
	}
	b := brokers[n-1]
	switch words[2] {
	case "fails":
		b.On(words[1], servicestest.Behaviour{Async: 1, Fails: true, Header: retryAtOnce})
		b.On(servicestest.Last, servicestest.Behaviour{Header: retryAtOnce})
	case "later":
		b.On(words[1], servicestest.Behaviour{Async: 1})
		b.On(servicestest.Last, servicestest.Behaviour{NoEffect: true, Body: `{"state": "in progress", "description": "still at it"}`, Header: retryAtOnce})
	case "ends", "obeys":
		b.On(words[1])
		b.On(servicestest.Last, servicestest.Behaviour{Header: retryAtOnce})
	default:
		newer, err := os.ReadFile(filepath.Join(dir, words[2]+".json"))
		if err != nil || words[1] != "offers" {
			return fmt.Errorf("%q is not understood: %w", what, err)
		}
		b.SetCatalog(string(newer))
	}
	return nil
}

// retryAtOnce requests to be polled again without delay.
var retryAtOnce = map[string]string{"Retry-After": "1"}
