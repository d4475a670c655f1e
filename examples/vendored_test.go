//go:build integration

package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// webInf is a web app whose launcher finds its files in WEB-INF of its own archive, as
// those of embedded servers do.
const webInf = `import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

public class Launcher {
    public static void main(String[] args) throws Exception {
        byte[] text = Launcher.class.getResourceAsStream("/WEB-INF/page.txt").readAllBytes();
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(System.getenv("PORT"))), 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
    }
}
`

// A Java app works as a war with an embedded server, as the contents of that war, and
// as a folder with the war in it.
func TestJavaArchives(t *testing.T) {
	const name = "war"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Launcher.java"), webInf, 0o644)
	write(t, filepath.Join(dir, "war", "WEB-INF", "page.txt"), "hello from WEB-INF\n", 0o644)
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, dir, "javac", "-d", "war", "Launcher.java")
	command(t, dir, "jar", "--create", "--file", "folder/app.war", "--main-class", "Launcher", "-C", "war", ".")
	command(t, dir, "unzip", "-q", "-o", "folder/app.war", "-d", "exploded")
	deleteLater(t, name)
	for _, path := range []string{"folder/app.war", "exploded", "folder"} {
		dew(t, "", "push", name, "-p", filepath.Join(dir, path), "-m", "256M")
		waitForPage(t, name, "/", "hello from WEB-INF\n")
	}
	lines := stagingLines(t, name)
	wantLine(t, lines, `Main class Launcher`)
	wantLine(t, lines, `Main class of app.war`)
	write(t, filepath.Join(dir, "plain", "page.txt"), "x", 0o644)
	if r := dewd.dew("", "push", name, "-p", filepath.Join(dir, "plain"), "-b", "java_buildpack"); r.code != 3 || !strings.Contains(r.err, "No jar with a Main-Class") {
		t.Errorf("a folder without a jar: status %d\n%s", r.code, tail(r.err))
	}
}

// Modules that were pushed with an app are used, and nothing is downloaded.
func TestVendoredModules(t *testing.T) {
	pushAndCheck := func(t *testing.T, dir, name, want string, patterns ...string) {
		t.Helper()
		deleteLater(t, name)
		dew(t, "", "push", name, "-p", dir, "-m", "128M")
		waitForPage(t, name, "/", want)
		for _, pattern := range patterns {
			wantLine(t, stagingLines(t, name), pattern)
		}
	}
	// pushAgain changes a file and pushes. The build must not install the dependencies again.
	pushAgain := func(t *testing.T, dir, name, file, want string) {
		t.Helper()
		const reused = `Using the dependencies of the last build`
		if lines := stagingLines(t, name); slices.ContainsFunc(lines, regexp.MustCompile(reused).MatchString) {
			t.Errorf("the first build reuses dependencies:\n%s", strings.Join(lines, "\n"))
		}
		write(t, filepath.Join(dir, file), "changed", 0o644)
		pushAndCheck(t, dir, name, want, reused, `The build artifacts cache is unchanged`)
	}
	t.Run("node from the last build", func(t *testing.T) {
		dir, module := t.TempDir(), t.TempDir()
		write(t, filepath.Join(module, "package.json"), `{"name":"greet","version":"1.0.0","main":"index.js"}`, 0o644)
		write(t, filepath.Join(module, "index.js"), `module.exports = "hello from a package\n"`, 0o644)
		command(t, module, "npm", "pack", "--silent", "--pack-destination", dir)
		write(t, filepath.Join(dir, "package.json"), `{"name":"reused","version":"1.0.0","dependencies":{"greet":"file:greet-1.0.0.tgz"}}`, 0o644)
		command(t, dir, "npm", "install", "--silent", "--package-lock-only", "--offline")
		write(t, filepath.Join(dir, "server.js"), `require("http").createServer((q, a) => a.end(require("greet"))).listen(process.env.PORT)`, 0o644)
		pushAndCheck(t, dir, "reused-node", "hello from a package\n")
		pushAgain(t, dir, "reused-node", "notes.txt", "hello from a package\n")
	})
	t.Run("node", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "package.json"), `{"name":"vendored","version":"1.0.0","dependencies":{"greet":"1.0.0"}}`, 0o644)
		write(t, filepath.Join(dir, "package-lock.json"), `{"name":"vendored","version":"1.0.0","lockfileVersion":3,"packages":{"":{"dependencies":{"greet":"1.0.0"}},`+
			`"node_modules/greet":{"version":"1.0.0","resolved":"https://registry.invalid/greet.tgz"}}}`, 0o644)
		write(t, filepath.Join(dir, "node_modules", "greet", "package.json"), `{"name":"greet","version":"1.0.0","main":"index.js"}`, 0o644)
		write(t, filepath.Join(dir, "node_modules", "greet", "index.js"), `module.exports = "hello from a module\n"`, 0o644)
		write(t, filepath.Join(dir, "server.js"), `require("http").createServer((q, a) => a.end(require("greet"))).listen(process.env.PORT)`, 0o644)
		pushAndCheck(t, dir, "vendored-node", "hello from a module\n", `Using the pushed node_modules`)
	})
	t.Run("python", func(t *testing.T) {
		if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "pip", "--version").Run(); err != nil {
			t.Skip("the host has no pip")
		}
		dir, wheel := t.TempDir(), t.TempDir()
		write(t, filepath.Join(wheel, "greet.py"), "text = b'hello from a wheel\\n'\n", 0o644)
		write(t, filepath.Join(wheel, "greet-1.0.dist-info", "METADATA"), "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n", 0o644)
		write(t, filepath.Join(wheel, "greet-1.0.dist-info", "WHEEL"), "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n", 0o644)
		write(t, filepath.Join(wheel, "greet-1.0.dist-info", "RECORD"), "greet.py,,\ngreet-1.0.dist-info/METADATA,,\ngreet-1.0.dist-info/WHEEL,,\ngreet-1.0.dist-info/RECORD,,\n", 0o644)
		if err := os.Mkdir(filepath.Join(dir, "vendor"), 0o755); err != nil {
			t.Fatal(err)
		}
		command(t, wheel, "zip", "-q", "-r", filepath.Join(dir, "vendor", "greet-1.0-py3-none-any.whl"), ".")
		write(t, filepath.Join(dir, "requirements.txt"), "greet==1.0\n", 0o644)
		write(t, filepath.Join(dir, "Procfile"), "web: python3 app.py\n", 0o644)
		write(t, filepath.Join(dir, "app.py"), `import greet, os
from http.server import BaseHTTPRequestHandler, HTTPServer

class H(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(greet.text)))
        self.end_headers()
        self.wfile.write(greet.text)

HTTPServer(("", int(os.environ["PORT"])), H).serve_forever()
`, 0o644)
		pushAndCheck(t, dir, "vendored-python", "hello from a wheel\n")
		pushAgain(t, dir, "vendored-python", "notes.txt", "hello from a wheel\n")
	})
	t.Run("php", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "composer.json"), `{"require":{"php":">=7.4","me/greet":"1.0"}}`, 0o644)
		write(t, filepath.Join(dir, "vendor", "autoload.php"), "<?php const TEXT = \"hello from vendor\\n\";", 0o644)
		write(t, filepath.Join(dir, "index.php"), "<?php require 'vendor/autoload.php'; echo TEXT;", 0o644)
		write(t, filepath.Join(dir, ".env"), "secret", 0o644)
		pushAndCheck(t, dir, "vendored-php", "hello from vendor\n", `Using the pushed vendor folder`)
		for _, path := range []string{"/.env", "/%2eenv", "/vendor/autoload.php", "/composer.json"} {
			if p := get(t, "vendored-php", path); p.status != 404 {
				t.Errorf("%s: %d %q, want it hidden", path, p.status, p.body)
			}
		}
	})
	t.Run("ruby", func(t *testing.T) {
		if _, err := exec.LookPath("bundle"); err != nil {
			t.Skip("the host has no bundler")
		}
		dir, gem := t.TempDir(), t.TempDir()
		write(t, filepath.Join(gem, "lib", "greet.rb"), "TEXT = \"hello from a gem\\n\"\n", 0o644)
		write(t, filepath.Join(gem, "greet.gemspec"), "Gem::Specification.new { |s| s.name = 'greet'; s.version = '1.0'; s.summary = 'x'; s.authors = ['x']; s.files = ['lib/greet.rb'] }\n", 0o644)
		command(t, gem, "gem", "build", "-q", "greet.gemspec")
		write(t, filepath.Join(dir, "Gemfile"), "source 'https://gems.invalid'\ngem 'greet', '1.0'\n", 0o644)
		write(t, filepath.Join(dir, "Gemfile.lock"), "GEM\n  remote: https://gems.invalid/\n  specs:\n    greet (1.0)\n\nPLATFORMS\n  ruby\n\nDEPENDENCIES\n  greet (= 1.0)\n\nBUNDLED WITH\n   99.0.0\n", 0o644)
		b, err := os.ReadFile(filepath.Join(gem, "greet-1.0.gem"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "vendor", "cache", "greet-1.0.gem"), string(b), 0o644)
		write(t, filepath.Join(dir, "Procfile"), "web: bundle exec ruby app.rb\n", 0o644)
		write(t, filepath.Join(dir, "app.rb"), `require "greet"
require "socket"
server = TCPServer.new("0.0.0.0", Integer(ENV.fetch("PORT")))
loop do
  client = server.accept
  while (line = client.gets) && line != "\r\n"
  end
  client.write("HTTP/1.1 200 OK\r\nContent-Length: #{TEXT.bytesize}\r\nConnection: close\r\n\r\n#{TEXT}")
  client.close
end
`, 0o644)
		pushAndCheck(t, dir, "vendored-ruby", "hello from a gem\n", `because 99\.0\.0 in Gemfile\.lock is not installed`)
		if lines := stagingLines(t, "vendored-ruby"); slices.ContainsFunc(lines, regexp.MustCompile(`Installing Bundler|Could not`).MatchString) {
			t.Errorf("Bundler tries to download itself or the gem:\n%s", strings.Join(lines, "\n"))
		}
		pushAgain(t, dir, "vendored-ruby", "notes.txt", "hello from a gem\n")
	})
}
