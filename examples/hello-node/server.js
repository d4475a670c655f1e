// Answers every request with a greeting. It needs no module.
const http = require("http");

http.createServer((request, response) => {
  response.end(`hello from Node.js in ${process.env.NODE_ENV}\n`);
}).listen(process.env.PORT);
