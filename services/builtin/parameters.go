package builtin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dewrun/dew/services"
)

// parameters are the settings that users can choose.
type parameters struct {
	Database       string `json:"database,omitempty"`
	MaxConnections int    `json:"max_connections,omitempty"`
	MaxMemory      string `json:"maxmemory_policy,omitempty"`
}

// The keys of parameters.
const (
	keyDatabase    = "database"
	keyConnections = "max_connections"
	keyPolicy      = "maxmemory_policy"
)

// defaultDatabase is the name of the database if the user chose none.
const defaultDatabase = "db"

const (
	minConnections = 5
	maxConnections = 500
)

// policies are the eviction policies of Redis for a full memory.
var policies = []string{
	"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random",
	"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
}

// databaseName matches names that all engines and clients accept without quotes.
var databaseName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// reservedNames are databases that the servers use themselves.
var reservedNames = []string{"postgres", "template0", "template1", "mysql", "sys", "information_schema", "performance_schema", "test"}

// schema is the JSON schema of one parameter.
type schema map[string]any

var schemas = map[string]schema{
	keyDatabase: {
		"type": "string", "pattern": databaseName.String(), "default": defaultDatabase,
		"description": "name of the database; it cannot be changed later",
	},
	keyConnections: {
		"type": "integer", "minimum": minConnections, "maximum": maxConnections,
		"description": "connections at a time; more of them leave less memory for each",
	},
	keyPolicy: {
		"type": "string", "enum": policies, "default": policies[0],
		"description": "what happens when the memory is used up",
	},
}

// schemaOf returns the JSON schema of the parameters with these keys.
func schemaOf(keys []string) json.RawMessage {
	properties := map[string]schema{}
	for _, k := range keys {
		properties[k] = schemas[k]
	}
	b, err := json.Marshal(map[string]any{
		"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
		"properties": properties, "additionalProperties": false,
	})
	if err != nil {
		panic(err) // cannot fail: made of literals only
	}
	return b
}

// refusal returns the error for a request that cannot be fulfilled.
func refusal(status int, format string, args ...any) *services.BrokerError {
	return &services.BrokerError{Status: status, Description: fmt.Sprintf(format, args...)}
}

// merge returns p with the parameters of a request applied. Only the given keys are
// allowed.
func (p parameters) merge(raw json.RawMessage, keys []string) (parameters, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return p, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return p, refusal(http.StatusBadRequest, "the parameters must be a JSON object: %v", err)
	}
	for _, k := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(keys, k) {
			return p, refusal(http.StatusBadRequest, "unknown parameter '%s' (%s)", k, validKeys(keys))
		}
		if err := p.set(k, given[k]); err != nil {
			return p, err
		}
	}
	return p, nil
}

func validKeys(keys []string) string {
	if len(keys) == 0 {
		return "the service has no parameters"
	}
	return "valid parameters: " + strings.Join(keys, ", ")
}

// set sets one parameter.
func (p *parameters) set(key string, raw json.RawMessage) error {
	switch key {
	case keyDatabase:
		var name string
		if json.Unmarshal(raw, &name) != nil || !databaseName.MatchString(name) || slices.Contains(reservedNames, name) {
			return refusal(http.StatusBadRequest, "parameter '%s' must have 1 to 63 lowercase letters, digits and underscores, start with a letter, and not be a reserved name of the server", key)
		}
		p.Database = name
	case keyConnections:
		var n int
		if json.Unmarshal(raw, &n) != nil || n < minConnections || n > maxConnections {
			return refusal(http.StatusBadRequest, "parameter '%s' must be a number from %d to %d", key, minConnections, maxConnections)
		}
		p.MaxConnections = n
	case keyPolicy:
		var policy string
		if json.Unmarshal(raw, &policy) != nil || !slices.Contains(policies, policy) {
			return refusal(http.StatusBadRequest, "parameter '%s' must be one of %s", key, strings.Join(policies, ", "))
		}
		p.MaxMemory = policy
	}
	return nil
}
