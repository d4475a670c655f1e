"""Answers every request with a greeting. It needs no package."""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self):
        text = b"hello from Python\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


HTTPServer(("0.0.0.0", int(os.environ["PORT"])), Greeter).serve_forever()
