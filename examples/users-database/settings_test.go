package main

import (
	"strings"
	"testing"
)

func TestFindSettings(t *testing.T) {
	local := map[string]string{"DB_CONNECTION": "pgsql", "DB_DATABASE": "d", "DB_USERNAME": "u", "DB_PASSWORD": "p"}
	entry := func(label, more string) string {
		return `{"` + label + `":[{"name":"db"` + more + `,"credentials":{"host":"10.0.0.7","port":5432,"database":"d","username":"u","password":"p:/@"}}]}`
	}
	tests := []struct {
		name string
		vcap string
		env  map[string]string
		want settings
		err  string // part of the error
	}{
		{"bound postgres", entry("postgres", ""), nil, settings{"postgres", "10.0.0.7", "5432", "d", "u", "p:/@"}, ""},
		{"bound wins over local", entry("mariadb", ""), local, settings{"mariadb", "10.0.0.7", "5432", "d", "u", "p:/@"}, ""},
		{"by tag", entry("user-provided", `,"tags":["MySQL"]`), nil, settings{"mariadb", "10.0.0.7", "5432", "d", "u", "p:/@"}, ""},
		{"port as text", strings.Replace(entry("postgres", ""), "5432", `"6543"`, 1), nil, settings{"postgres", "10.0.0.7", "6543", "d", "u", "p:/@"}, ""},
		{"another service", `{"redis":[{"name":"r","credentials":{"host":"h","port":1}}]}`, local, settings{"postgres", "127.0.0.1", "5432", "d", "u", "p"}, ""},
		{"nothing bound", `{}`, local, settings{"postgres", "127.0.0.1", "5432", "d", "u", "p"}, ""},
		{"local mariadb", "", map[string]string{"DB_CONNECTION": "mysql", "DB_HOST": "h"}, settings{Driver: "mariadb", Host: "h", Port: "3306"}, ""},
		{"nothing at all", "", nil, settings{}, "bind one and restage"},
		{"no JSON", `{`, local, settings{}, "VCAP_SERVICES is not as expected"},
		{"no list", `{"postgres":{}}`, local, settings{}, "a service 'postgres' that is not as expected"},
		{"no port", strings.Replace(entry("postgres", ""), "5432", `"x"`, 1), local, settings{}, "no number of a port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := findSettings(func(name string) string {
				if name == "VCAP_SERVICES" {
					return tt.vcap
				}
				return tt.env[name]
			})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error = %v, want %q in it", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("settings = %+v, %v; want %+v", got, err, tt.want)
			}
			if strings.Contains(got.String(), got.Password) && got.Password != "" && got.Password != "p" {
				t.Errorf("%s tells the password", got)
			}
		})
	}
}

func FuzzFromServices(f *testing.F) {
	f.Add(`{"postgres":[{"credentials":{"host":"h","port":"1"}}]}`)
	f.Add(`{"a":null}`)
	f.Fuzz(func(t *testing.T, vcap string) {
		s, found, err := fromServices(vcap)
		if found && (err != nil || s.Host == "" || s.Driver == "") {
			t.Errorf("fromServices(%q) = %+v, %v", vcap, s, err)
		}
	})
}
