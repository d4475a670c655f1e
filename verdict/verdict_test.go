package verdict

import (
	"strings"
	"testing"
	"time"
)

// row is a crash and what dew must say about it.
type row struct {
	name     string
	facts    Facts
	class    Class
	sentence string
	advice   string // a part of it
}

func web(e Exit) Facts {
	return Facts{App: "shop", ProcessType: "web", Stack: "host", Port: 8080, First: e}
}

func sidecar(e Exit) Facts {
	e.Sidecar = "config-server"
	return web(e)
}

func starting(e Exit) Facts {
	f := web(e)
	f.Starting = true
	return f
}

func startingSidecar(e Exit) Facts {
	f := sidecar(e)
	f.Starting = true
	return f
}

func exit(code int, stderr ...string) Exit { return Exit{Code: code, Cause: Exited, Stderr: stderr} }

func check(e Exit, h Health, l ...Listener) Facts {
	f := web(e)
	f.Health, f.Listening = h, l
	return f
}

var (
	timeout   = Exit{Code: -1, Cause: StartTimeout, Detail: "never healthy after 1m0s: port check failed: connection to 10.201.0.2:8080 refused"}
	httpCheck = Health{Type: "http", Endpoint: "/health", Timeout: time.Minute}
	portCheck = Health{Type: "port", Timeout: time.Minute}
)

func answered(status int) Health {
	h := httpCheck
	h.Status = status
	return h
}

func withDisk(f Facts, d Disk) Facts {
	f.Disk = d
	return f
}

func withMemory(f Facts, m Memory) Facts {
	f.Memory = m
	return f
}

var rows = []row{
	{
		"memory of a sidecar", sidecar(Exit{Code: 137, Cause: MemoryProcess, Memory: Memory{Limit: 64 << 20, Peak: 64 << 20}}), MemoryProcess,
		"sidecar config-server ran out of memory: it reached its limit of 64M", "`memory: 96M` for sidecar config-server",
	},
	{
		"memory of the process", web(Exit{Code: 137, Cause: MemoryProcess, Memory: Memory{Limit: 1 << 30}}), MemoryProcess,
		"web ran out of memory: it reached its limit of 1G", "dew scale shop -m 1.5G",
	},
	{"memory of the process, limit not known", web(Exit{Code: 137, Cause: MemoryProcess}), MemoryProcess, "web ran out of memory", "`memory` in the manifest"},
	{
		"memory of the instance", withMemory(web(Exit{Code: 137, Cause: MemoryInstance, Memory: Memory{Peak: 200 << 20}}), Memory{Limit: 256 << 20}), MemoryInstance,
		"the instance ran out of memory: its processes together reached the limit of 256M", "more than 256M",
	},
	{"memory of the machine", web(Exit{Code: 137, Cause: MemoryHost}), MemoryHost, "this machine ran out of memory, and the kernel killed web", "Stop other apps"},

	{
		"http check answered 404", check(timeout, answered(404), Listener{Port: 8080}), StartTimeout,
		"the health check of web failed: GET /health answered 404", "`health-check-http-endpoint` in the manifest to a path that answers 200",
	},
	{"http check answered 401", check(timeout, answered(401)), StartTimeout, "the health check of web failed: GET /health answered 401", "without a login"},
	{"http check answered 503 later", check(Exit{Code: -1, Cause: Unhealthy}, answered(503)), Unhealthy, "the health check of web failed: GET /health answered 503", "dew logs shop"},
	{"another port", check(timeout, portCheck, Listener{Port: 3000}), StartTimeout, "the app listens on port 3000, but it must listen on $PORT (8080)", "variable PORT"},
	{
		"other ports", check(timeout, portCheck, Listener{Port: 9000}, Listener{Port: 3000, Loopback: true}, Listener{Port: 3000}), StartTimeout,
		"the app listens on ports 3000, 9000, but it must listen on $PORT (8080)", "variable PORT",
	},
	{
		"loopback only", check(timeout, portCheck, Listener{Port: 8080, Loopback: true}), StartTimeout,
		"the app listens on 127.0.0.1:8080, where neither the health check nor the router can connect", "0.0.0.0:$PORT",
	},
	{"no answer", check(timeout, httpCheck, Listener{Port: 8080}), StartTimeout, "the health check of web failed: GET /health got no answer in time", "invocation-timeout"},
	{"not listening", check(timeout, portCheck), StartTimeout, "web did not open port 8080 within 1m0s", "health-check-type: process"},
	{
		"unhealthy later", check(Exit{Code: -1, Cause: Unhealthy, Detail: "port check failed: no answer"}, portCheck, Listener{Port: 8080}), Unhealthy,
		"the health check of web failed: port check failed: no answer", "dew logs shop",
	},

	{
		"missing library", starting(exit(127, "./app: error while loading shared libraries: libfoo.so.1: cannot open shared object file: No such file or directory")), StartFailed,
		"./app could not start: libfoo.so.1 is missing in stack host", "apt-file search libfoo.so.1",
	},
	{
		"missing library of a known package", starting(exit(127, "./app: error while loading shared libraries: libpq.so.5: cannot open shared object file: No such file or directory")), StartFailed,
		"./app could not start: libpq.so.5 is missing in stack host", "apt install libpq5",
	},
	{"command not found in dash", starting(exit(127, "sh: 1: gunicorn: not found")), StartFailed, "web could not start: command gunicorn was not found", "`command` in the manifest"},
	{
		"command not found in bash", startingSidecar(exit(127, "bash: line 1: ./confd: No such file or directory")), StartFailed,
		"sidecar config-server could not start: command ./confd was not found", "of sidecar config-server",
	},
	{"command not found, no output", web(Exit{Code: 127, Cause: StartFailed}), StartFailed, "web could not start: a command was not found", "`command`"},
	{"not executable", starting(exit(126, "sh: 1: ./app: Permission denied")), StartFailed, "web could not start: sh: 1: ./app: Permission denied", "chmod +x"},
	{
		"other processor", starting(exit(126, "bash: line 1: ./app: cannot execute binary file: Exec format error")), StartFailed,
		"web could not start: its program was built for another kind of machine, or is not a program", "Build the program for Linux",
	},
	{
		"command of a running script", web(exit(127, "./backup.sh: line 3: pg_dump: command not found")), Exited,
		"web failed with status 127: ./backup.sh: line 3: pg_dump: command not found", "dew logs",
	},
	{"never ran", web(Exit{Code: -1, Cause: StartFailed, Detail: "the rootfs is not there"}), StartFailed, "web could not start: the rootfs is not there", "`command`"},

	{
		"disk full", withDisk(web(exit(1, "write /home/vcap/app/data: disk quota exceeded")), Disk{Limit: 64 << 20, Used: 64 << 20, Largest: "app/cache", Size: 60 << 20}), DiskFull,
		"web failed with status 1 after the instance had used 64M of its 64M disk limit; the largest directory is app/cache (60M)", "`disk_quota: 128M`",
	},
	{
		"no more files", withDisk(web(exit(1, "touch: no space left on device")), Disk{Limit: 64 << 20, Used: 2 << 20, NoFiles: true, Largest: "/tmp"}), DiskFull,
		"web failed with status 1 after the instance had created as many files as its 64M disk limit allows; the largest directory is /tmp (0B)", "`disk_quota: 128M`",
	},
	{
		"large write", withDisk(web(exit(1, "OSError: [Errno 28] No space left on device")), Disk{Limit: 64 << 20, Used: 62 << 20, Largest: "/tmp", Size: 61 << 20}), DiskFull,
		"web failed with status 1 after the instance had used 62M of its 64M disk limit; the largest directory is /tmp (61M)", "`disk_quota: 128M`",
	},
	{"little space, another error", withDisk(web(exit(1, "no such table")), Disk{Limit: 64 << 20, Used: 62 << 20}), Exited, "web failed with status 1: no such table", "dew logs"},
	{"disk not full", withDisk(web(exit(1, "no such table")), Disk{Limit: 64 << 20, Used: 32 << 20}), Exited, "web failed with status 1: no such table", "dew logs"},

	{
		"JVM heap", web(exit(1, `Exception in thread "main" java.lang.OutOfMemoryError: Java heap space`, "\tat Main.main(Main.java:5)")), Exited,
		"the JVM of web ran out of memory: its heap is full", "-Xmx",
	},
	{"JVM metaspace", web(exit(3, "Terminating due to java.lang.OutOfMemoryError: Metaspace")), Exited, "the JVM of web ran out of memory: its metaspace is too small", "MaxMetaspaceSize"},
	{
		"JVM options", web(exit(1, "Unrecognized VM option 'UseFoo'", "Error: Could not create the Java Virtual Machine.")), Exited,
		"the JVM of web did not start: Unrecognized VM option 'UseFoo'", "JAVA_OPTS",
	},
	{
		"Java exception", web(exit(1, `Exception in thread "main" org.x.BeanException: bad`, "\tat X", "Caused by: java.net.ConnectException: Connection refused")), Exited,
		"web failed with status 1: java.net.ConnectException: Connection refused", "dew logs",
	},
	{
		"Node heap", web(Exit{Code: 134, Cause: Exited, Memory: Memory{Limit: 256 << 20}, Stderr: []string{"FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"}}), Exited,
		"Node.js of web reached its heap limit", "--max-old-space-size=192",
	},
	{
		"Node error", web(exit(1, "Error: Cannot find module 'express'", "    at Module._load (node:internal/modules/cjs/loader:1)", "Node.js v18.19.0")), Exited,
		"web failed with status 1: Error: Cannot find module 'express'", "Add express to the dependencies",
	},
	{
		"Go panic", web(exit(2, "panic: runtime error: index out of range", "", "goroutine 1 [running]:", "main.main()")), Exited,
		"web failed with status 2: panic: runtime error: index out of range", "Fix the panic",
	},
	{
		"Python variable", web(exit(1, "Traceback (most recent call last):", `  File "app.py", line 3, in <module>`, "    url = os.environ['DATABASE_URL']", "KeyError: 'DATABASE_URL'")), Exited,
		"web failed with status 1: KeyError: 'DATABASE_URL'", "dew set-env shop DATABASE_URL VALUE",
	},
	{
		"Python module", web(exit(1, "Traceback (most recent call last):", `  File "app.py"`, "ModuleNotFoundError: No module named 'flask'")), Exited,
		"web failed with status 1: ModuleNotFoundError: No module named 'flask'", "requirements.txt",
	},
	{"Ruby error", web(exit(1, "app.rb:1:in `<main>': undefined local variable (NameError)")), Exited, "web failed with status 1: undefined local variable (NameError)", "dew logs"},
	{
		"port in use", sidecar(exit(1, "listen tcp :8080: bind: address already in use")), Exited,
		"sidecar config-server failed with status 1: port 8080 is already in use in the instance", "a port of its own",
	},

	{"status 0", web(exit(0)), Exited, "web finished with exit status 0, but it must run until dew stops it", "dew run-task shop"},
	{"last line", web(exit(1, "config.yml is missing", "")), Exited, "web failed with status 1: config.yml is missing", "dew logs shop --recent"},
	{"silent", web(exit(7)), Exited, "web failed with status 7 and printed nothing", "dew logs shop --recent"},
	{"only standard output", web(Exit{Code: 1, Cause: Exited, Stdout: []string{"out of paper", ""}}), Exited, "web failed with status 1; its last line: out of paper", "dew logs"},
	{"SIGSEGV", web(exit(139)), Signaled, "web crashed with SIGSEGV: it accessed memory that it does not have", "dew logs"},
	{"SIGKILL from nobody known", web(Exit{Code: 137, Cause: Killed, Signal: Signal{Number: 9}}), Killed, "web was killed by SIGKILL; the sender is unknown", "signals"},
	{"SIGKILL from a program", web(Exit{Code: 137, Cause: Killed, Signal: Signal{Number: 9, Sender: "pkill (pid 812)"}}), Killed, "web was killed: pkill (pid 812) sent it SIGKILL", "who started this program"},
	{"SIGTERM to itself", web(Exit{Code: 143, Cause: Exited, Signal: Signal{Number: 15, Sender: "app (process 7)", Self: true}}), Killed, "web was killed: it sent SIGTERM to itself", "sends this signal"},
	{
		"JVM heap with its size",
		web(Exit{Code: 3, Cause: Exited, Memory: Memory{Limit: 256 << 20, Peak: 200 << 20}, Stdout: []string{"JVM memory: -Xmx140m -Xss1m", "Terminating due to java.lang.OutOfMemoryError: Java heap space"}}),
		Exited, "the JVM of web ran out of memory: its heap of 140M is full", "memory: 384M",
	},
	{"status 137 only", web(exit(137)), Killed, "web ended with status 137: killed by SIGKILL from an unknown sender, or exited with 137 itself", "signals"},
	{
		"killed with dew", sidecar(Exit{Code: 137, Cause: KilledByUser, Signal: Signal{Number: 9, User: "admin"}}), KilledByUser,
		"sidecar config-server was killed: admin sent it SIGKILL with dew", "Nothing to do",
	},

	{
		"output failed", web(Exit{Code: -1, Cause: OutputFailed, Detail: "no space left on device"}), OutputFailed,
		"dewd could not store the output of web any more, and stopped the instance so that no line is lost", "disk space",
	},
	{"container lost", web(Exit{Code: -1, Cause: ContainerLost}), ContainerLost, "the container of the instance ended, and its exit status is not known", "shim"},
	{
		"removed", web(Exit{Code: 143, Cause: Removed, Detail: "someone evicted it, for example to drain node one"}), Removed,
		"Kubernetes removed the Pod of the instance: someone evicted it, for example to drain node one", "Nothing is wrong with the app",
	},
	{
		"evicted for its disk usage",
		Facts{ProcessType: "web", First: Exit{Code: 137, Cause: DiskFull, Detail: "Usage of EmptyDir volume"}, Disk: Disk{Limit: 64 << 20}},
		DiskFull,
		"the instance used more than its 64M disk limit, and Kubernetes stopped it", "disk_quota: 128M",
	},
	{"nothing known", web(Exit{Code: -1, Cause: Exited}), Unknown, "web crashed; dew does not know why", "dew logs shop"},
}

func TestExplain(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			v := Explain(r.facts)
			if v.Class != r.class || v.Sentence != r.sentence {
				t.Errorf("got  %s: %s\nwant %s: %s", v.Class, v.Sentence, r.class, r.sentence)
			}
			if !strings.Contains(v.Advice, r.advice) || v.Advice == "" {
				t.Errorf("advice %q does not contain %q", v.Advice, r.advice)
			}
		})
	}
}

// TestSentences checks the form that every sentence has.
func TestSentences(t *testing.T) {
	for _, r := range rows {
		v := Explain(r.facts)
		for _, s := range append([]string{v.Sentence, v.Advice}, v.Evidence...) {
			if strings.HasSuffix(s, ".") || strings.Contains(s, "\n") || strings.Contains(s, "  ") || s != strings.TrimSpace(s) {
				t.Errorf("%s: %q", r.name, s)
			}
		}
	}
}

// TestExplainHidesControlCharacters feeds output that would change the terminal.
func TestExplainHidesControlCharacters(t *testing.T) {
	v := Explain(web(exit(1, "\x1b[2Jgone \x07"+strings.Repeat("x", 500))))
	if strings.ContainsAny(v.Sentence, "\x1b\x07") || len([]rune(v.Sentence)) > maxQuote+40 {
		t.Errorf("%q", v.Sentence)
	}
}

func TestStatus(t *testing.T) {
	for in, want := range map[string]string{
		"137": "status 137: SIGKILL killed the process", "0": "finished without an error", "42": "the program's own status",
		"141": "SIGPIPE killed the process, or the program exited", "SIGTERM": "SIGTERM (signal 15): a process that it kills has exit status 143",
		"kill": "SIGKILL (signal 9)", "127": "did not find the command",
	} {
		if got, err := Status(in); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"256", "-1", "SIGNOPE", ""} {
		if got, err := Status(in); err == nil {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func FuzzExplain(f *testing.F) {
	f.Add("./app: error while loading shared libraries: x: cannot open shared object file", 127, "exited")
	f.Add("panic: x", 2, "exited")
	f.Fuzz(func(t *testing.T, line string, code int, cause string) {
		facts := web(Exit{Code: code, Cause: Class(cause), Stderr: strings.Split(line, "\n"), Stdout: []string{line}})
		v := Explain(facts)
		if v.Sentence == "" || v.Class == "" {
			t.Fatalf("%q %d %s: %+v", line, code, cause, v)
		}
		for _, r := range v.Sentence {
			if printable(r) == ' ' && r != ' ' {
				t.Fatalf("control character in %q", v.Sentence)
			}
		}
	})
}
