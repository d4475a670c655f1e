package services

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchema limits a schema, in bytes.
const maxSchema = 64 << 10

// semver matches a version as defined by semver.org.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// noFetching refuses to load schemas that a schema refers to. Brokers must not make the
// daemon read files or contact other servers.
type noFetching struct{}

func (noFetching) Load(string) (any, error) {
	return nil, errors.New("No external references are allowed") //nolint:staticcheck // the platform's words
}

// compile parses a schema. It returns nil for an empty schema.
func compile(raw json.RawMessage) (*jsonschema.Schema, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > maxSchema {
		return nil, errors.New("Must not be larger than 64KB") //nolint:staticcheck // the platform's words
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("Must be valid JSON") //nolint:staticcheck // the platform's words
	}
	if _, is := doc.(map[string]any); !is {
		return nil, errors.New("Must be a JSON object") //nolint:staticcheck // the platform's words
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4)
	c.UseLoader(noFetching{})
	const here = "schema:parameters"
	if err := c.AddResource(here, doc); err != nil {
		return nil, fmt.Errorf("cannot read the schema: %w", err)
	}
	s, err := c.Compile(here)
	if err != nil {
		return nil, fmt.Errorf("Must conform to JSON Schema Draft 04 (experimental support for later versions): %w", err) //nolint:staticcheck // the platform's words
	}
	if steps(s, map[*jsonschema.Schema]int{}) > maxSteps {
		return nil, fmt.Errorf("Must not require more than %d steps to check one value", maxSteps) //nolint:staticcheck // as the others
	}
	return s, nil
}

// maxSteps limits the number of schemas that one value is checked against. Nested
// references can double that number at every level.
const maxSteps = 10_000

// steps counts the schemas that one value is checked against. It stops counting shortly
// after maxSteps. The map known has the earlier results; a schema that is being counted
// is 1.
func steps(s *jsonschema.Schema, known map[*jsonschema.Schema]int) int {
	if s == nil {
		return 0
	}
	if n, is := known[s]; is {
		return n
	}
	known[s] = 1
	n := 1
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, {s.Ref, s.Not, s.If, s.Then, s.Else}} {
		for _, one := range list {
			n = min(n+steps(one, known), maxSteps+1)
		}
	}
	known[s] = n
	return n
}

// checkSchema returns the error of an invalid schema.
func checkSchema(raw json.RawMessage) error {
	_, err := compile(raw)
	return err
}

// CheckParameters returns an error that names the parameters the plan does not allow.
func CheckParameters(schema, parameters json.RawMessage) error {
	s, err := compile(schema)
	if err != nil {
		return fmt.Errorf("cannot check parameters: %w", err) // already checked when the catalog was read
	}
	if s == nil {
		return nil
	}
	if parameters == nil {
		parameters = json.RawMessage("{}")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(parameters))
	if err != nil {
		return NewInvalid("parameters", "parameters must be a JSON object")
	}
	err = s.Validate(doc)
	if wrong := (*jsonschema.ValidationError)(nil); errors.As(err, &wrong) {
		return violations(wrong)
	}
	return err
}

// violations returns an error for every invalid parameter.
func violations(wrong *jsonschema.ValidationError) error {
	var all []error
	for _, unit := range wrong.BasicOutput().Errors {
		if unit.Error == nil {
			continue
		}
		key := "parameters" + strings.ReplaceAll(unit.InstanceLocation, "/", ".")
		all = append(all, NewInvalid(key, "%s: %s", key, unit.Error.String()))
	}
	if len(all) == 0 {
		return NewInvalid("parameters", "parameters: %s", wrong.Error())
	}
	return errors.Join(all...)
}
