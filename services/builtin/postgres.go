package builtin

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

//go:embed scripts/postgres.sh
var postgresScript string

// postgresOwner owns everything in the database. The users of bindings act as this
// role, so that they share their data.
const postgresOwner = "dew_owner"

const postgresPort = 5432

var postgres = &engine{
	name: "postgres", title: "PostgreSQL", description: "PostgreSQL, a server of its own for each instance",
	tags:     []string{"postgres", "postgresql", "relational", "sql", "database"},
	keys:     []string{keyDatabase, keyConnections},
	packages: []string{"postgresql"}, image: "docker.io/library/postgres:17",
	installed: []string{"/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres", "/usr/bin/postgres"},
	port:      postgresPort, killDelay: time.Minute, script: commonScript + postgresScript,
	plans: map[string]size{
		smallPlan: {memoryMB: 256, diskMB: 1024, connections: 20},
		largePlan: {memoryMB: 1024, diskMB: 10240, connections: 100},
	},
	conf: postgresConf, setupStatements: postgresSetup, bind: postgresBind, unbind: postgresUnbind,
	ping: "SELECT 'ready';\n", pong: "ready", checkpoint: "CHECKPOINT;\n",
	client: []string{"-d", "postgres", "-f", "-"}, shell: func(r record) []string { return []string{"-d", r.database()} },
	prune: postgresPrune, full: postgresFull,
	credentials: func(r record, binding string) credentials {
		return access{
			scheme: "postgres", jdbc: "postgresql", address: r.host(), port: postgresPort, database: r.database(),
			user: userOf(binding), password: r.bindingPassword(binding),
		}.credentials()
	},
}

func postgresConf(_ record, z size, _ parameters) map[string]string {
	return map[string]string{
		"postgresql.conf": fmt.Sprintf(`data_directory = '/data/data'
hba_file = '/conf/pg_hba.conf'
listen_addresses = '0.0.0.0'
port = %d
unix_socket_directories = '/data/run'
unix_socket_permissions = 0700
max_connections = %d
superuser_reserved_connections = 3
password_encryption = 'scram-sha-256'
shared_buffers = %dMB
effective_cache_size = %dMB
maintenance_work_mem = %dMB
work_mem = %dkB
max_wal_size = %dMB
min_wal_size = 80MB
# Shared memory is small in a container.
dynamic_shared_memory_type = mmap
log_destination = 'stderr'
logging_collector = off
log_line_prefix = '%%q%%u@%%d '
log_timezone = 'UTC'
timezone = 'UTC'
datestyle = 'iso, mdy'
lc_messages = 'C.UTF-8'
default_text_search_config = 'pg_catalog.english'
`, postgresPort, z.connections+3, z.memoryMB/4, z.memoryMB*5/8, max(z.memoryMB/16, 16),
			max(z.memoryMB*1024/4/z.connections, 1024), max(z.diskMB/8, 128)),
		// Connections inside the container come from the server itself. Connections
		// from outside need a password and cannot log in as the administrator.
		"pg_hba.conf": "local all all trust\nhost all postgres all reject\nhost all all all scram-sha-256\n",
	}
}

// quoteName and quoteText quote for SQL. Their arguments are already validated; quoting
// is a second safeguard.
func quoteName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// postgresSetup also allows bindings to see and terminate the sessions of each other,
// because they belong to the same instance.
func postgresSetup(r record) string {
	db := r.database()
	return fmt.Sprintf(`SELECT 'CREATE ROLE %[1]s NOLOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%[1]s') \gexec
SELECT 'CREATE DATABASE %[2]s OWNER %[1]s' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = %[3]s) \gexec
GRANT pg_monitor, pg_signal_backend TO %[1]s;
REVOKE ALL ON DATABASE postgres, template1, %[2]s FROM PUBLIC;
`, postgresOwner, quoteName(db), quoteText(db))
}

// scram returns the password hash that the server stores (RFC 5803).
func scram(password string, salt []byte) string {
	const rounds = 4096
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		panic(err) // fails only for an invalid length
	}
	sign := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	stored := sha256.Sum256(sign(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, b64(salt), b64(stored[:]), b64(sign(salted, "Server Key")))
}

func postgresBind(r record, binding string) string {
	user := userOf(binding)
	return fmt.Sprintf(`SELECT 'CREATE ROLE %[1]s' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%[1]s') \gexec
ALTER ROLE %[1]s LOGIN INHERIT PASSWORD %[2]s;
GRANT %[3]s TO %[1]s;
ALTER ROLE %[1]s SET role = '%[3]s';
`, user, quoteText(scram(r.bindingPassword(binding), r.salt(binding))), postgresOwner)
}

func postgresUnbind(r record, binding string) string {
	user := userOf(binding)
	return fmt.Sprintf(`SELECT 'ALTER ROLE %[1]s NOLOGIN' FROM pg_roles WHERE rolname = '%[1]s' \gexec
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%[1]s';
\connect %[2]s
SELECT 'REASSIGN OWNED BY %[1]s TO %[3]s' FROM pg_roles WHERE rolname = '%[1]s' \gexec
SELECT 'DROP OWNED BY %[1]s' FROM pg_roles WHERE rolname = '%[1]s' \gexec
SELECT 'DROP ROLE %[1]s' FROM pg_roles WHERE rolname = '%[1]s' \gexec
`, user, quoteName(r.database()), postgresOwner)
}

// postgresPrune drops the users without a binding. The owner role gets their objects.
func postgresPrune(r record) string {
	return fmt.Sprintf(`\connect %[1]s
SELECT format('REASSIGN OWNED BY %%I TO %[2]s', rolname) FROM pg_roles WHERE rolcanlogin AND rolname ~ '^u[0-9a-f]{16}$' AND rolname NOT IN (%[3]s) \gexec
SELECT format('DROP OWNED BY %%I', rolname) FROM pg_roles WHERE rolcanlogin AND rolname ~ '^u[0-9a-f]{16}$' AND rolname NOT IN (%[3]s) \gexec
SELECT format('DROP ROLE %%I', rolname) FROM pg_roles WHERE rolcanlogin AND rolname ~ '^u[0-9a-f]{16}$' AND rolname NOT IN (%[3]s) \gexec
\connect postgres
`, quoteName(r.database()), postgresOwner, userList(r))
}

// userList returns the users of all bindings, quoted for SQL. It is never empty.
func userList(r record) string {
	out := "''"
	for _, binding := range r.Bindings {
		out += ", " + quoteText(userOf(binding))
	}
	return out
}

// postgresFull makes transactions read-only by default. A transaction can override
// that, so users can still delete data. It closes all sessions, so that clients
// reconnect with the new setting.
func postgresFull(r record, full bool) string {
	change := "RESET default_transaction_read_only"
	if full {
		change = "SET default_transaction_read_only = on"
	}
	return fmt.Sprintf(`ALTER DATABASE %[1]s %[2]s;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %[3]s AND pid <> pg_backend_pid();
`, quoteName(r.database()), change, quoteText(r.database()))
}
