# Answers every request with a greeting. It needs no gem.
require "socket"

server = TCPServer.new("0.0.0.0", Integer(ENV.fetch("PORT")))
loop do
  client = server.accept
  while (line = client.gets) && line != "\r\n"
  end
  text = "hello from Ruby in #{ENV["RACK_ENV"]}\n"
  client.write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: #{text.bytesize}\r\nConnection: close\r\n\r\n#{text}")
  client.close
end
