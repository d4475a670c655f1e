# A web app whose configuration comes from a sidecar: GET /config asks the config
# server on localhost and returns what it said. It needs no gem.
require "net/http"
require "socket"

# The platform puts the time before every line, when it gets it.
$stdout.sync = true

SIDECAR_TIMEOUT = 2 # seconds
REASONS = { 200 => "OK", 404 => "Not Found", 405 => "Method Not Allowed", 502 => "Bad Gateway" }.freeze

Answer = Struct.new(:status, :type, :body)

def main
  port, config_port = ENV["PORT"], ENV["CONFIG_SERVER_PORT"]
  abort "cannot start: PORT and CONFIG_SERVER_PORT must be set" if port.to_s.empty? || config_port.to_s.empty?
  server = TCPServer.new("0.0.0.0", Integer(port)) # on all addresses: the router comes from outside
  puts "app listens on #{server.addr[3]}:#{server.addr[1]}"
  trap("TERM") { exit }
  loop { Thread.start(server.accept) { |client| serve(client, Integer(config_port)) } }
end

# serve answers one request.
def serve(client, config_port)
  method, target = client.gets.to_s.split
  return if method.nil? || target.nil?
  while (line = client.gets) && line != "\r\n"
  end
  puts "#{method} #{target}"
  write(client, answer(method, target.split("?").first, config_port))
rescue SystemCallError
  # The client has gone.
ensure
  client.close
end

def answer(method, path, config_port)
  return Answer.new(404, "text/plain", "404 page not found\n") if path != "/config"
  return Answer.new(405, "text/plain", "Method Not Allowed\n") if method != "GET"
  config(config_port)
end

# config asks the sidecar. Its errors are one line each, for the one who asked us.
def config(port)
  http = Net::HTTP.new("localhost", port)
  http.open_timeout = http.read_timeout = SIDECAR_TIMEOUT
  said = http.get("/config/")
  return Answer.new(502, "text/plain", "the config server answered #{said.code}\n") if said.code != "200"
  Answer.new(200, said["Content-Type"], said.body)
rescue SystemCallError, Timeout::Error, EOFError => e
  Answer.new(502, "text/plain", "the config server does not answer: #{e.message}\n")
end

def write(client, answer)
  client.write("HTTP/1.1 #{answer.status} #{REASONS[answer.status]}\r\nContent-Type: #{answer.type}\r\n" \
               "Content-Length: #{answer.body.bytesize}\r\nConnection: close\r\n\r\n#{answer.body}")
end

main if $PROGRAM_NAME == __FILE__
