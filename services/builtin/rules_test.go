package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/services"
)

func TestParameters(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		engine    *engine
		want      parameters
		refused   string // a part of the message
	}{
		{name: "none", raw: "", engine: postgres},
		{name: "null", raw: "null", engine: postgres},
		{name: "database", raw: `{"database":"shop_1"}`, engine: postgres, want: parameters{Database: "shop_1"}},
		{name: "connections", raw: `{"max_connections":50}`, engine: mariadb, want: parameters{MaxConnections: 50}},
		{name: "policy", raw: `{"maxmemory_policy":"allkeys-lru"}`, engine: redis, want: parameters{MaxMemory: "allkeys-lru"}},
		{name: "no object", raw: `[1]`, engine: postgres, refused: "must be a JSON object"},
		{name: "unknown", raw: `{"speed":9}`, engine: postgres, refused: "unknown parameter 'speed' (valid parameters: database, max_connections)"},
		{name: "of another engine", raw: `{"database":"x"}`, engine: redis, refused: "unknown parameter 'database'"},
		{name: "a quote", raw: `{"database":"x\"; DROP"}`, engine: postgres, refused: "parameter 'database'"},
		{name: "the server's own", raw: `{"database":"postgres"}`, engine: postgres, refused: "parameter 'database'"},
		{name: "a new line", raw: `{"database":"x\n"}`, engine: postgres, refused: "parameter 'database'"},
		{name: "too many", raw: `{"max_connections":100000}`, engine: postgres, refused: "from 5 to 500"},
		{name: "no number", raw: `{"max_connections":"many"}`, engine: postgres, refused: "from 5 to 500"},
		{name: "policy that is none", raw: `{"maxmemory_policy":"x\nsave 1 1"}`, engine: redis, refused: "must be one of noeviction"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parameters{}.merge([]byte(tt.raw), tt.engine.keys)
			if tt.refused == "" {
				if err != nil || got != tt.want {
					t.Errorf("= %+v, %v, want %+v", got, err, tt.want)
				}
				return
			}
			e, ok := errors.AsType[*services.BrokerError](err)
			if !ok || e.Status != 400 || !strings.Contains(e.Description, tt.refused) {
				t.Errorf("= %v, want 400 %q", err, tt.refused)
			}
		})
	}
}

// Accepted parameters are safe in statements and files, and are accepted again.
func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{"database":"shop","max_connections":20}`))
	f.Add([]byte(`{"maxmemory_policy":"volatile-ttl"}`))
	f.Add([]byte(`{"database":"a'b"}`))
	f.Add([]byte(`{"database":null,"max_connections":null}`))
	keys := []string{keyDatabase, keyConnections, keyPolicy}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parameters{}.merge(raw, keys)
		if err != nil {
			return
		}
		if p.Database != "" && !databaseName.MatchString(p.Database) || p.MaxConnections < 0 || p.MaxConnections > maxConnections ||
			p.MaxMemory != "" && !slices.Contains(policies, p.MaxMemory) {
			t.Fatalf("%s is taken as %+v", raw, p)
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := (parameters{}).merge(b, keys); err != nil || again != p {
			t.Fatalf("%s = %+v, again %+v, %v", raw, p, again, err)
		}
	})
}

// Parsing the URI returns the values it was built from, whatever the password is.
func TestCredentials(t *testing.T) {
	for _, password := range []string{"plain", "p@ss:w/rd?#[]%", "ü ' \" & = +", "%41"} {
		a := access{
			scheme: "postgres", jdbc: "postgresql", address: netip.MustParseAddr("10.0.0.7"), port: 5432,
			database: "shop", user: "u&=@:/", password: password,
		}
		c := a.credentials()
		u, err := url.Parse(c.URI)
		if err != nil {
			t.Fatalf("%q: %v", password, err)
		}
		if got, _ := u.User.Password(); got != password || u.User.Username() != a.user || u.Host != "10.0.0.7:5432" || u.Path != "/shop" {
			t.Errorf("%q: uri = %s", password, c.URI)
		}
		_, query, _ := strings.Cut(c.JDBCURL, "?")
		q, err := url.ParseQuery(query)
		if err != nil || q.Get("password") != password || q.Get("user") != a.user {
			t.Errorf("%q: jdbcUrl = %s, %v", password, c.JDBCURL, err)
		}
		if !strings.HasPrefix(c.JDBCURL, "jdbc:postgresql://10.0.0.7:5432/shop?") {
			t.Errorf("jdbcUrl = %s", c.JDBCURL)
		}
	}
}

// Credentials have these keys, and the port is a number.
func TestCredentialKeys(t *testing.T) {
	r := record{Secret: []byte("secret"), Address: netip.MustParseAddr("10.0.0.7")}
	for _, e := range engines {
		bound, err := bindingData(record{Engine: e.name, Secret: r.Secret, Address: r.Address}, "b")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(bound.Credentials, &got); err != nil {
			t.Fatal(err)
		}
		want := []string{"host", "port", "username", "password", "uri"}
		if e != redis {
			want = append(want, "database", "jdbcUrl")
		}
		for _, k := range want {
			if got[k] == nil || got[k] == "" {
				t.Errorf("%s: no %s in %s", e.name, k, bound.Credentials)
			}
		}
		if got["port"] != float64(e.port) || got["host"] != "10.0.0.7" {
			t.Errorf("%s: %s", e.name, bound.Credentials)
		}
		if _, there := got["jdbcUrl"]; there == (e == redis) {
			t.Errorf("%s: %s", e.name, bound.Credentials)
		}
	}
}

// Passwords differ by instance and binding, and are the same each time.
func TestPasswords(t *testing.T) {
	a, b := record{Secret: newSecret()}, record{Secret: newSecret()}
	if again := (record{Secret: a.Secret}); a.bindingPassword("x") != again.bindingPassword("x") {
		t.Error("the same binding has two passwords")
	}
	all := []string{a.bindingPassword("x"), a.bindingPassword("y"), b.bindingPassword("x"), a.password("admin")}
	slices.Sort(all)
	if len(slices.Compact(all)) != 4 || len(all[0]) != 40 {
		t.Errorf("passwords = %v", all)
	}
	if userOf("x") == userOf("y") || len(userOf("x")) != 17 {
		t.Errorf("users = %s, %s", userOf("x"), userOf("y"))
	}
}

// The password hashes match those of other implementations.
func TestVerifiers(t *testing.T) {
	salt := []byte{0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81}
	const want = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
	if got := scram("pencil", salt); got != want {
		t.Errorf("scram = %s", got)
	}
	if got := nativePassword("password"); got != "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19" {
		t.Errorf("native = %s", got)
	}
	if got := hashed("password"); got != "#5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8" {
		t.Errorf("hashed = %s", got)
	}
}

// No statement contains a password, because failed statements are printed and logged.
func TestStatementsHoldNoPassword(t *testing.T) {
	for _, e := range engines {
		r := record{Engine: e.name, Shape: shape{Plan: smallPlan, Parameters: parameters{Database: "shop_1"}}, Secret: newSecret(), Bindings: []string{"x"}}
		text := e.setupStatements(r) + e.bind(r, "x") + e.unbind(r, "x") + e.prune(r)
		if strings.Contains(text, r.bindingPassword("x")) || strings.Contains(text, r.password("admin")) {
			t.Errorf("%s: %s", e.name, text)
		}
		if !strings.Contains(text, userOf("x")) || e != redis && !strings.Contains(text, "shop") {
			t.Errorf("%s: %s", e.name, text)
		}
	}
	if got := mariadbBind(record{Shape: shape{Parameters: parameters{Database: "a_b"}}}, "x"); !strings.Contains(got, "`a\\_b`.*") {
		t.Errorf("an underscore stands for any letter: %s", got)
	}
}

func TestQuoting(t *testing.T) {
	if got := quoteName(`a"b`); got != `"a""b"` {
		t.Errorf("quoteName = %s", got)
	}
	if got := quoteText(`a'b`); got != `'a''b'` {
		t.Errorf("quoteText = %s", got)
	}
	if got := quoteTicks("a`b"); got != "`a``b`" {
		t.Errorf("quoteTicks = %s", got)
	}
}

// Every supported shell can parse the scripts.
func TestScripts(t *testing.T) {
	for _, e := range engines {
		for _, shell := range []string{"sh", "bash"} {
			c := exec.Command(shell, "-n")
			c.Stdin = strings.NewReader(e.script)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s by %s: %v: %s", e.name, shell, err, out)
			}
		}
	}
}

func TestCheckRedisOutput(t *testing.T) {
	for out, good := range map[string]bool{
		"OK\n1\n": true, "": true, "PONG": true, "OK\nERR no such thing\n": false, "NOPERM this user": false,
		"LOADING Redis is loading": false,
	} {
		if err := checkRedisOutput(out); (err == nil) != good {
			t.Errorf("%q = %v", out, err)
		}
	}
	if got := usedMemory("# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\n"); got != 1<<20 {
		t.Errorf("used memory = %d", got)
	}
}

func TestCatalog(t *testing.T) {
	os, err := (&Broker{}).Catalog(context.Background())
	if err != nil || len(os) != 3 {
		t.Fatalf("catalog = %v, %v", os, err)
	}
	ids := map[string]bool{}
	for i, name := range []string{"postgres", "mariadb", "redis"} {
		o := os[i]
		if o.Name != name || !o.Bindable || !o.PlanUpdateable || len(o.Plans) != 2 || len(o.Tags) == 0 || !json.Valid(o.Metadata) {
			t.Errorf("offering = %+v", o)
		}
		ids[o.ID] = true
		for j, p := range o.Plans {
			ids[p.ID] = true
			if p.Name != planNames[j] || p.Paid != (p.Name == largePlan) || !strings.Contains(p.Description, "of memory") {
				t.Errorf("%s: plan = %+v", name, p)
			}
			if !json.Valid(p.Metadata) || !json.Valid(p.Schemas.InstanceCreate) || !json.Valid(p.Schemas.BindingCreate) {
				t.Errorf("%s %s: no JSON: %s %s", name, p.Name, p.Metadata, p.Schemas.InstanceCreate)
			}
			e, plan, err := planOf(o.ID, p.ID)
			if err != nil || e.name != name || plan != p.Name {
				t.Errorf("chosen(%s, %s) = %v, %s, %v", o.ID, p.ID, e, plan, err)
			}
		}
	}
	if len(ids) != 9 {
		t.Errorf("ids = %v", ids)
	}
	for _, wrong := range [][2]string{{"dew-oracle", "dew-postgres-small"}, {"dew-postgres", "dew-redis-small"}} {
		if _, _, err := planOf(wrong[0], wrong[1]); err == nil {
			t.Errorf("%v can be had", wrong)
		}
	}
}
