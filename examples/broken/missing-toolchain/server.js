require("http").createServer((_, res) => res.end("hello\n")).listen(process.env.PORT);
