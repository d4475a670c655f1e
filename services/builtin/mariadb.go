package builtin

import (
	"crypto/sha1" // required by the server's authentication protocol
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed scripts/mariadb.sh
var mariadbScript string

const mariadbPort = 3306

var mariadb = &engine{
	name: "mariadb", title: "MariaDB", description: "MariaDB, a server of its own for each instance",
	tags:     []string{"mariadb", "mysql", "relational", "sql", "database"},
	keys:     []string{keyDatabase, keyConnections},
	packages: []string{"mariadb-server"}, image: "docker.io/library/mariadb:11.4",
	installed: []string{"/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd"},
	port:      mariadbPort, killDelay: time.Minute, script: commonScript + mariadbScript,
	plans: map[string]size{
		smallPlan: {memoryMB: 384, diskMB: 1024, connections: 20},
		largePlan: {memoryMB: 1024, diskMB: 10240, connections: 100},
	},
	conf: mariadbConf, setupStatements: mariadbSetup, bind: mariadbBind, unbind: mariadbUnbind,
	ping: "SELECT 'ready';\n", pong: "ready", checkpoint: "FLUSH TABLES;\n",
	client: []string{"--batch", "--skip-column-names"},
	shell:  func(r record) []string { return []string{r.database()} }, prune: mariadbPrune, full: mariadbFull,
	credentials: func(r record, binding string) credentials {
		return access{
			scheme: "mysql", jdbc: "mariadb", address: r.host(), port: mariadbPort, database: r.database(),
			user: userOf(binding), password: r.bindingPassword(binding),
		}.credentials()
	},
}

func mariadbConf(_ record, z size, _ parameters) map[string]string {
	return map[string]string{"my.cnf": fmt.Sprintf(`[mariadbd]
datadir = /data/data
tmpdir = /data/tmp
socket = /data/run/mariadb.sock
pid-file = /data/run/mariadb.pid
bind-address = 0.0.0.0
port = %d
max-connections = %d
character-set-server = utf8mb4
collation-server = utf8mb4_general_ci
# Health checks connect and disconnect: do not block their host for that.
skip-name-resolve
host-cache-size = 0
log-warnings = 1
performance-schema = OFF
innodb-buffer-pool-size = %dM
innodb-log-file-size = %dM
innodb-use-native-aio = 0
key-buffer-size = 8M
aria-pagecache-buffer-size = 8M
local-infile = OFF
default-time-zone = '+00:00'
`, mariadbPort, z.connections, z.memoryMB*3/8, max(z.memoryMB/16, 24))}
}

// quoteTicks quotes a name for MariaDB.
func quoteTicks(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

func mariadbSetup(r record) string {
	return fmt.Sprintf(`CREATE DATABASE IF NOT EXISTS %s;
DELETE FROM mysql.global_priv WHERE User = '' OR (User = 'root' AND Host <> 'localhost');
DELETE FROM mysql.proxies_priv;
FLUSH PRIVILEGES;
`, quoteTicks(r.database()))
}

// nativePassword returns the password hash that the server stores.
func nativePassword(password string) string {
	once := sha1.Sum([]byte(password))
	twice := sha1.Sum(once[:])
	return fmt.Sprintf("*%X", twice)
}

func mariadbBind(r record, binding string) string {
	user, hash := userOf(binding), nativePassword(r.bindingPassword(binding))
	// In a grant, an underscore in the database name matches any character.
	db := quoteTicks(strings.ReplaceAll(r.database(), "_", `\_`))
	return fmt.Sprintf(`CREATE USER IF NOT EXISTS '%[1]s'@'%%';
ALTER USER '%[1]s'@'%%' IDENTIFIED BY PASSWORD '%[2]s' ACCOUNT UNLOCK;
GRANT ALL PRIVILEGES ON %[3]s.* TO '%[1]s'@'%%';
`, user, hash, db)
}

func mariadbUnbind(_ record, binding string) string {
	// CREATE comes first: ALTER fails without the user, and a repeated unbind may not
	// find it.
	return fmt.Sprintf(`CREATE USER IF NOT EXISTS '%[1]s'@'%%';
ALTER USER '%[1]s'@'%%' ACCOUNT LOCK;
KILL HARD CONNECTION USER '%[1]s';
DROP USER IF EXISTS '%[1]s'@'%%';
`, userOf(binding))
}

// mariadbPrune drops the users without a binding.
func mariadbPrune(r record) string {
	where := "User REGEXP '^u[0-9a-f]{16}$' AND User NOT IN (" + userList(r) + ")"
	return "DELETE FROM mysql.global_priv WHERE " + where + ";\nDELETE FROM mysql.db WHERE " + where + ";\nFLUSH PRIVILEGES;\n"
}

// mariadbFull revokes the rights to add data from all bindings, or grants them again.
// It closes all connections, so that clients reconnect with the new rights.
func mariadbFull(r record, full bool) string {
	db := quoteTicks(strings.ReplaceAll(r.database(), "_", `\_`))
	var b strings.Builder
	for _, binding := range r.Bindings {
		user := userOf(binding)
		if full {
			fmt.Fprintf(&b, "REVOKE INSERT, UPDATE, CREATE, ALTER, INDEX ON %s.* FROM '%s'@'%%';\n", db, user)
		} else {
			fmt.Fprintf(&b, "GRANT ALL PRIVILEGES ON %s.* TO '%s'@'%%';\n", db, user)
		}
		fmt.Fprintf(&b, "KILL HARD CONNECTION USER '%s';\n", user)
	}
	return b.String()
}
