package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// settings hold the address and the credentials of the database.
type settings struct {
	Driver   string // "postgres" or "mariadb"
	Host     string
	Port     string
	Database string
	Username string
	Password string
}

// String returns the address of the database, without the password.
func (s settings) String() string {
	return s.Driver + "://" + s.Username + "@" + net.JoinHostPort(s.Host, s.Port) + "/" + s.Database
}

// defaultPort is the default port of each database.
var defaultPort = map[string]string{"postgres": "5432", "mariadb": "3306"}

// findSettings returns the bound service in VCAP_SERVICES. Without one it uses the
// local settings DB_CONNECTION, DB_HOST, DB_PORT, DB_DATABASE, DB_USERNAME and
// DB_PASSWORD.
func findSettings(env func(string) string) (settings, error) {
	s, found, err := fromServices(env("VCAP_SERVICES"))
	if err != nil || found {
		return s, err
	}
	s = settings{
		Driver: driverOf(env("DB_CONNECTION"), nil), Host: env("DB_HOST"), Port: env("DB_PORT"),
		Database: env("DB_DATABASE"), Username: env("DB_USERNAME"), Password: env("DB_PASSWORD"),
	}
	if s.Driver == "" {
		return s, errors.New("no database is bound: bind one and restage, or set DB_CONNECTION to postgres or mariadb, and DB_HOST, DB_PORT, DB_DATABASE, DB_USERNAME, DB_PASSWORD")
	}
	if s.Host == "" {
		s.Host = "127.0.0.1"
	}
	if s.Port == "" {
		s.Port = defaultPort[s.Driver]
	}
	return s, nil
}

// service is an entry of VCAP_SERVICES, with the fields that the app needs.
type service struct {
	Name        string   `json:"name"`
	Tags        []string `json:"tags"`
	Credentials struct {
		Host     string `json:"host"`
		Port     port   `json:"port"`
		Database string `json:"database"`
		Username string `json:"username"`
		Password string `json:"password"`
		URI      string `json:"uri"`
	} `json:"credentials"`
}

// port is a number, which some brokers write as text.
type port string

func (p *port) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("port %s is no number of a port", b)
	}
	*p = port(strconv.FormatUint(n, 10))
	return nil
}

// fromServices finds the first service that is a database this app supports.
func fromServices(vcap string) (s settings, found bool, err error) {
	if vcap == "" {
		return s, false, nil
	}
	var labels map[string]json.RawMessage
	if err := json.Unmarshal([]byte(vcap), &labels); err != nil {
		return s, false, fmt.Errorf("VCAP_SERVICES is not as expected: %w", err)
	}
	for _, label := range sortedKeys(labels) {
		var list []service
		if err := json.Unmarshal(labels[label], &list); err != nil {
			return s, false, fmt.Errorf("VCAP_SERVICES has a service '%s' that is not as expected: %w", label, err)
		}
		for _, v := range list {
			driver := driverOf(label, append(v.Tags, strings.SplitN(v.Credentials.URI, ":", 2)[0]))
			if driver == "" || v.Credentials.Host == "" {
				continue
			}
			c := v.Credentials
			return settings{Driver: driver, Host: c.Host, Port: string(c.Port), Database: c.Database, Username: c.Username, Password: c.Password}, true, nil
		}
	}
	return s, false, nil
}

// driverOf returns the kind of a database by its label, otherwise by its tags.
func driverOf(label string, tags []string) string {
	for _, word := range append([]string{label}, tags...) {
		word = strings.ToLower(word)
		switch {
		case strings.Contains(word, "postgres") || word == "pgsql":
			return "postgres"
		case strings.Contains(word, "mariadb") || strings.Contains(word, "mysql"):
			return "mariadb"
		}
	}
	return ""
}
