package services

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// The newest bindings of each service instance stay, even if several have the same time.
func TestOutdated(t *testing.T) {
	var all []v3.ServiceCredentialBinding
	for i, service := range []string{"s-kv", "s-kv", "s-db", "s-kv", "s-db"} {
		at := time.Unix(100, 0)
		if i == 1 {
			at = time.Unix(200, 0) // out of order
		}
		b := v3.ServiceCredentialBinding{GUID: strconv.Itoa(i), CreatedAt: v3.At(at)}
		b.Relationships.ServiceInstance = v3.To(service)
		all = append(all, b)
	}
	for keep, want := range map[int][]int{1: {0, 2, 3}, 2: {0}, 3: {}} {
		var got []int
		for _, b := range outdated(all, keep) {
			got = append(got, slices.IndexFunc(all, func(one v3.ServiceCredentialBinding) bool { return one.GUID == b.GUID }))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("of %d kept, %v are outdated, want %v", keep, got, want)
		}
	}
}

// The password of a service is never an argument, because all users of the machine can
// see the arguments.
func TestConnectClients(t *testing.T) {
	for uri, want := range map[string]string{
		"postgres://x":   "psql -h h -p 1 -U u -d d|PGPASSWORD=s3cret",
		"postgresql://x": "psql -h h -p 1 -U u -d d|PGPASSWORD=s3cret",
		"mysql://x":      "mariadb -h h -P 1 -u u d|MYSQL_PWD=s3cret",
		"mariadb://x":    "mariadb -h h -P 1 -u u d|MYSQL_PWD=s3cret",
		"redis://x":      "redis-cli -h h -p 1 --user u|REDISCLI_AUTH=s3cret",
	} {
		args, secret, err := login{Host: "h", Port: 1, Database: "d", Username: "u", Password: "s3cret", URI: uri}.client()
		if got := strings.Join(args, " ") + "|" + secret; err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", uri, got, err, want)
		}
	}
	if _, _, err := (login{URI: "https://x"}).client(); err == nil {
		t.Error("https has a client")
	}
}
