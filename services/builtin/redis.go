package builtin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
)

//go:embed scripts/redis.sh
var redisScript string

const redisPort = 6379

// usersFile has the users. The copy in the configuration has the users of a new server.
const usersFile = "users.acl"

// redisAdmin is the user that dew logs in with. Redis has no other way in for it.
const redisAdmin = "dew-admin"

var redis = &engine{
	name: "redis", title: "Redis", description: "Redis, a server of its own for each instance",
	tags:     []string{"redis", "key-value", "cache", "pivotal"},
	keys:     []string{keyConnections, keyPolicy},
	packages: []string{"redis-server"}, image: "docker.io/library/redis:7.2",
	installed: []string{"/usr/bin/redis-server", "/usr/local/bin/redis-server", "/usr/bin/valkey-server"},
	port:      redisPort, killDelay: 30 * time.Second, script: commonScript + redisScript,
	plans: map[string]size{
		smallPlan: {memoryMB: 128, diskMB: 256, connections: 100},
		largePlan: {memoryMB: 512, diskMB: 1024, connections: 500},
	},
	conf: redisConf, bind: redisBind, unbind: redisUnbind,
	setupStatements: func(record) string { return "" },
	ping:            "PING\n", pong: "PONG",
	checkOutput: checkRedisOutput, shell: func(record) []string { return nil },
	prune: func(record) string { return "" }, // see usersFile
	credentials: func(r record, binding string) credentials {
		return access{
			scheme: "redis", address: r.host(), port: redisPort,
			user: userOf(binding), password: r.bindingPassword(binding),
		}.credentials()
	},
}

// redisMemory returns how many bytes of a plan's memory values can use. The rest is for
// buffers and for copies while the file is rewritten.
func redisMemory(z size) int64 { return int64(z.memoryMB) << 20 * 5 / 8 }

func hashed(password string) string {
	sum := sha256.Sum256([]byte(password))
	return "#" + hex.EncodeToString(sum[:])
}

func redisConf(r record, z size, p parameters) map[string]string {
	policy := policies[0]
	if p.MaxMemory != "" {
		policy = p.MaxMemory
	}
	admin := r.password("admin")
	return map[string]string{
		"redis.conf": fmt.Sprintf(`bind 0.0.0.0
port %d
protected-mode no
daemonize no
unixsocket /data/run/redis.sock
unixsocketperm 700
dir /data/data
aclfile /data/data/users.acl
logfile ""
appendonly yes
appendfsync everysec
save ""
maxclients %d
maxmemory %d
maxmemory-policy %s
`, redisPort, z.connections, redisMemory(z), policy),
		usersFile: "user default off resetpass -@all\n" +
			"user " + redisAdmin + " on " + hashed(admin) + " ~* &* +@all\n",
		adminFile: admin + "\n",
	}
}

func redisBind(r record, binding string) string {
	return fmt.Sprintf("ACL SETUSER %s reset on %s ~* &* +@all -@admin -migrate\nACL SAVE\n",
		userOf(binding), hashed(r.bindingPassword(binding)))
}

// redisUnbind also closes the connections of the user.
func redisUnbind(_ record, binding string) string {
	return fmt.Sprintf("ACL DELUSER %s\nACL SAVE\n", userOf(binding))
}

// redisGood matches responses that report success.
var redisGood = regexp.MustCompile(`^(OK|PONG|[0-9]+)$`)

// checkRedisOutput returns the first response that is not a success, because the client
// exits with 0 in any case.
func checkRedisOutput(out string) error {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line != "" && !redisGood.MatchString(line) {
			return fmt.Errorf("the server returned %q", line)
		}
	}
	return nil
}
