package builtin

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// credentials are the credentials of a binding. Cloud Foundry services use both names
// of the host and of the database.
type credentials struct {
	Host     string `json:"host"`
	Hostname string `json:"hostname"`
	Port     int    `json:"port"`
	Database string `json:"database,omitempty"`
	Name     string `json:"name,omitempty"`
	Username string `json:"username"`
	Password string `json:"password"`
	URI      string `json:"uri"`
	JDBCURL  string `json:"jdbcUrl,omitempty"`
}

// access has the values that credentials are built from.
type access struct {
	scheme         string // of the URI
	jdbc           string // the subprotocol of the JDBC URL; empty: no JDBC URL
	address        netip.Addr
	port           int
	database       string // empty: none
	user, password string
}

func (a access) credentials() credentials {
	host := a.address.String()
	at := net.JoinHostPort(host, strconv.Itoa(a.port))
	uri := url.URL{Scheme: a.scheme, User: url.UserPassword(a.user, a.password), Host: at}
	if a.database != "" {
		uri.Path = "/" + a.database
	}
	c := credentials{
		Host: host, Hostname: host, Port: a.port, Database: a.database, Name: a.database,
		Username: a.user, Password: a.password, URI: uri.String(),
	}
	if a.jdbc != "" {
		q := url.Values{"user": {a.user}, "password": {a.password}}
		c.JDBCURL = "jdbc:" + a.jdbc + "://" + at + "/" + url.PathEscape(a.database) + "?" + q.Encode()
	}
	return c
}
