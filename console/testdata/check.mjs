// Checks of the pure functions of the console. Both `node --test` and the browser test
// of dewd run them: load imports a module of console/assets by name.

export async function check(load) {
  const failures = [];
  const equal = (what, got, want) => {
    const [g, w] = [JSON.stringify(got), JSON.stringify(want)];
    if (g !== w) failures.push(`${what}: got ${g}, want ${w}`);
  };
  const f = await load("format.js");
  for (const [n, want] of [[0, "0B"], [900, "900B"], [1024, "1K"], [64 << 20, "64M"], [1.5 * (1 << 30), "1.5G"], [1048575, "1M"], [-2048, "-2K"], [NaN, "–"]]) equal(`bytes(${n})`, f.bytes(n), want);
  for (const [s, want] of [[0, "0 s"], [59.4, "59 s"], [61, "1 min 1 s"], [601, "10 min"], [3600, "1 h"], [3660, "1 h 1 min"], [90000, "1 d 1 h"], [-5, "0 s"]]) equal(`duration(${s})`, f.duration(s), want);
  for (const [n, want] of [[0, "0%"], [0.0004, "<0.1%"], [0.016, "1.6%"], [1.234, "123%"]]) equal(`percent(${n})`, f.percent(n), want);
  equal("plural 1", f.plural(1, "crash", "crashes"), "1 crash");
  equal("plural 2", f.plural(2, "crash", "crashes"), "2 crashes");
  equal("ago", f.ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:02:30Z")), "2 min ago");
  equal("visible", f.visible("a\u202eb\u0000c\td"), "a\\u202eb\\u0000c\td");
  equal("source of a sidecar", f.sourceName("APP/PROC/WEB/SIDECAR/CONFIG SERVER"), "config server");
  equal("source of the router", f.sourceName("RTR"), "router");

  equal("events", f.events(": keep-alive\n\nevent: live\ndata: {\"a\":\ndata: 1}\n\nevent: live\nda"), { events: [{ type: "live", data: '{"a":\n1}' }], rest: "event: live\nda" });
  equal("an event without a type", f.events("data:x\n\n"), { events: [{ type: "message", data: "x" }], rest: "" });

  const ansi = await load("ansi.js");
  equal("colours", ansi.parse("\u001b[1;31mred\u001b[0m plain"), [{ text: "red", classes: "fg1 bold" }, { text: " plain", classes: "" }]);
  equal("256 colours", ansi.parse("\u001b[38;5;196mx")[0].color, "rgb(255, 0, 0)");
  equal("24 bits", ansi.parse("\u001b[38;2;1;2;999mx")[0].color, "rgb(1, 2, 255)");
  equal("other sequences", ansi.plain("a\u001b[2Kb\u001b]0;title\u0007c"), "abc");
  equal("an unfinished sequence stays visible", ansi.parse("a\u001b[")[0].text + (ansi.parse("a\u001b[")[1] || { text: "" }).text, "a\\u001b[");
  equal("markup stays text", ansi.parse("<b>x</b>")[0].text, "<b>x</b>");
  equal("level", ["ERROR x", '{"level":"warn"}', "x", "DEBUG y"].map((t) => ansi.level(t, "APP/PROC/WEB")), ["error", "warn", "", "debug"]);
  equal("level of the router", [200, 404, 502].map((s) => ansi.level(`h - [t] "GET / HTTP/1.1" ${s} 0`, "RTR")), ["", "warn", "error"]);

  const { LineWindow, visibleRange, atEnd } = await load("virtual.js");
  equal("visible rows", visibleRange({ scrollTop: 1000, height: 200, row: 20, count: 1000000, overscan: 2 }), { first: 48, last: 62 });
  equal("visible rows of an empty list", visibleRange({ scrollTop: 500, height: 200, row: 20, count: 0 }), { first: 0, last: 0 });
  equal("at the end", [atEnd({ scrollTop: 800, height: 200, row: 20, count: 50 }), atEnd({ scrollTop: 700, height: 200, row: 20, count: 50 })], [true, false]);
  const w = new LineWindow(10);
  const lines = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => ({ seq: from + i }));
  equal("removed lines", w.append(lines(1, 12)), 2);
  equal("repeated lines", w.append(lines(10, 13)), 1);
  equal("the window", [w.lines.length, w.lines[0].seq, w.lines[9].seq], [10, 4, 13]);
  equal("index", w.indexOf(7), 3);
  equal("older lines", w.prepend(lines(1, 3)), 3);
  equal("the window after older lines", [w.lines.length, w.lines[0].seq, w.lines[9].seq, w.atEnd], [10, 1, 10, false]);

  const { breakText, columns, Heights } = await load("virtual.js");
  equal("columns", ["abc", "日本", "e\u0301", "\ud83d\ude00"].map(columns), [3, 4, 1, 2]);
  equal("rows of a text", [breakText("abcdefgh", 3, 9), breakText("", 3, 9), breakText("日本語", 4, 9), breakText("a\tb", 4, 9)], [["abc", "def", "gh"], [""], ["日本", "語"], ["a", "\t", "b"]]);
  equal("at most two rows", breakText("abcdefgh", 3, 2), ["abc", "de…"]);
  const heights = new Heights();
  heights.set([1, 3, 2], (n) => n);
  equal("heights", [heights.starts, heights.total, [0, 1, 3, 4, 5, 99].map((r) => heights.lineAt(r))], [[0, 1, 4, 6], 6, [0, 1, 1, 2, 2, 2]]);

  const { exits } = await load("views/crashes.js");
  equal("one exit for each process", exits({ first: { source: "a", cause: "start_timeout", code: -1, memory_peak: 0 }, followers: [{ source: "a", cause: "x", code: 0, memory_peak: 5 }, { source: "b", memory_peak: 1 }] }),
    [{ source: "a", cause: "start_timeout", code: 0, memory_peak: 5 }, { source: "b", memory_peak: 1 }]);
  const { browserName } = await load("views/sessions.js");
  equal("browsers", ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36", "curl/8"].map(browserName), ["Chrome 120 on Linux", "curl/8"]);

  const { Reader, timeOf } = await load("loglines.js");
  const uvarint = (n) => { const out = []; for (n = BigInt(n); n > 127n; n >>= 7n) out.push(Number(n & 127n) | 128); out.push(Number(n)); return out; };
  const text = (s) => { const b = [...new TextEncoder().encode(s)]; return [...uvarint(b.length), ...b]; };
  const record = (b) => [...uvarint(b.length), ...b];
  const ns = 1763343000123456789n;
  const bytes = Uint8Array.from([
    ...record([1, ...uvarint(9007199254740000n), ...uvarint(ns << 1n), 1, 0, ...uvarint(6), ...text("RTR"), ...text(""), ...new TextEncoder().encode("häß")]),
    ...record([1, ...uvarint(300), ...uvarint(ns << 1n), 0, 8, ...uvarint(0), ...text("CELL"), ...text("x"), ...uvarint(120), ...uvarint(0), ...text("retention"), 103]),
    ...record([2, ...uvarint(77)]), ...record([0]),
  ]);
  for (const size of [1, 7, bytes.length]) { // chunks may end anywhere
    const r = new Reader();
    const got = [];
    for (let i = 0; i < bytes.length; i += size) got.push(...r.feed(bytes.slice(i, i + size)));
    equal(`lines in chunks of ${size}`, got.map((l) => [l.seq, l.source, l.index, l.err, l.gap, l.text, l.lost]), [[9007199254740000, "RTR", 3, true, false, "häß", undefined], [300, "CELL", 0, false, true, "g", 120]]);
    equal("exact time", timeOf(got[0]), "2025-11-17T01:30:00.123456789Z");
    equal("end and place", [r.ended, r.place], [true, 77]);
  }

  const { segments } = await load("membar.js");
  equal("segments with limits", segments(256, [{ mem: 96, mem_quota: 192 }, { sidecar: "a", mem: 64, mem_quota: 64 }]).map((s) => [s.share, s.fill]), [[0.75, 0.5], [0.25, 1]]);
  equal("segments without limits", segments(64, [{ mem: 24, mem_quota: 0 }, { sidecar: "a", mem: 8, mem_quota: 0 }]).map((s) => [s.share, s.fill]), [[0.75, 0.5], [0.25, 0.5]]);
  equal("one process without a limit", segments(64, [{ mem: 12, mem_quota: 0 }, { sidecar: "a", mem: 8, mem_quota: 16 }]).map((s) => [s.share, s.fill]), [[0.75, 0.25], [0.25, 0.5]]);

  const { expression, narrow, predicate } = await load("logfilter.js");
  equal("text filter", [expression("a.b").test("xA.By"), expression("a.b").test("axb"), expression("/a.b/").test("axb")], [true, false, true]);
  equal("narrowed sources", [narrow(new Set(["WEB/SIDECAR/AGENT"])), narrow(new Set(["WEB"])), narrow(new Set(["router", "WEB"]))], [{ process: "WEB", sidecar: "AGENT" }, { process: "WEB", no_sidecars: "true" }, {}]);
  const passes = predicate(new Set(["WEB"]), /x/, "1");
  equal("lines that pass", [passes({ source: "APP/PROC/WEB", index: 1, text: "x" }), passes({ source: "RTR", index: 1, text: "x" }), passes({ gap: true })], [true, false, true]);

  const router = await load("router.js");
  const routes = [{ pattern: "/" }, { pattern: "/apps/:guid/logs" }];
  equal("routes", [router.match(routes, "/").route.pattern, router.match(routes, "/apps/a%2Fb/logs").params.guid, router.match(routes, "/apps//logs"), router.match(routes, "/x")], ["/", "a/b", null, null]);

  const { mergeSeries } = await load("views/app.js");
  const one = (times) => ({ times, requests_per_second: times, latency_ms: times, processes: [{ mem: times, cpu: times, mem_quota: 5 }] });
  equal("a gap between two instances", mergeSeries([one([1, 2]), one([9, 10])], [""]).mem, [[1, 2, null, 9, 10]]);
  return failures;
}
