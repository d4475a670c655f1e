package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// localRedis is the address of Redis on a machine without a platform.
const localRedis = "redis://127.0.0.1:6379"

// service is an entry of VCAP_SERVICES, with the fields that the app needs.
type service struct {
	Label       string   `json:"label"`
	Tags        []string `json:"tags"`
	Credentials struct {
		URI string `json:"uri"`
	} `json:"credentials"`
}

// findRedis returns the first bound Redis in VCAP_SERVICES. Without one it uses
// REDIS_URL, and without that the machine's own Redis.
func findRedis(env func(string) string) (*redis.Options, error) {
	address, source := env("REDIS_URL"), "REDIS_URL"
	if address == "" {
		address = localRedis
	}
	bound, err := fromServices(env("VCAP_SERVICES"))
	if err != nil {
		return nil, err
	}
	if bound != "" {
		address, source = bound, "the uri of the bound service"
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("%s is no address of Redis: it must be redis://user:password@host:port", source) // it holds a password
	}
	return o, nil
}

func fromServices(vcap string) (uri string, err error) {
	if vcap == "" {
		return "", nil
	}
	var labels map[string][]service
	if err := json.Unmarshal([]byte(vcap), &labels); err != nil {
		return "", fmt.Errorf("VCAP_SERVICES is not as expected: %w", err)
	}
	for _, list := range labels {
		for _, v := range list {
			if v.Credentials.URI != "" && isRedis(v) && (uri == "" || v.Credentials.URI < uri) {
				uri = v.Credentials.URI
			}
		}
	}
	return uri, nil
}

// isRedis recognizes Redis by its label, its tags or its address.
func isRedis(v service) bool {
	return strings.Contains(strings.ToLower(v.Label), "redis") || slices.Contains(v.Tags, "redis") || strings.HasPrefix(v.Credentials.URI, "redis")
}
