// The live state of all apps: one event stream for the whole page. It is closed while
// the page is hidden, and it reconnects by itself. An EventSource could not send the
// page's token.

import { open } from "./api.js";
import { events } from "./format.js";

const listeners = new Set();
const statusListeners = new Set();
const failureListeners = new Set();
const changeListeners = new Set();
let source = null; // AbortController of the open stream
let timer = 0;
let delay = 0;
let last = null;
let status = "connecting"; // open, away
let stopped = false;

// live returns the newest state, or null before the first one.
export const live = () => last;
// connection returns connecting, open or away.
export const connection = () => status;

// onLive calls f with every new state, and once with the present one. It returns a
// function that stops this.
export function onLive(f) {
  listeners.add(f);
  if (last) f(last);
  return () => listeners.delete(f);
}

// onConnection calls f when the connection changes.
export function onConnection(f) {
  statusListeners.add(f);
  return () => statusListeners.delete(f);
}

// onFailure calls f after each failed connection.
export const onFailure = (f) => failureListeners.add(f);

// liveApp returns the live state of one app.
export const liveApp = (guid) => (last ? last.resources.find((a) => a.guid === guid) : undefined);

function set(next) {
  if (status === next) return;
  status = next;
  for (const f of statusListeners) f(next);
}

function connect() {
  clearTimeout(timer);
  if (source || stopped || document.hidden) return;
  const own = source = new AbortController();
  receive(own.signal).catch(() => {}).then(() => {
    own.abort();
    if (source !== own) return; // closed by this page
    source = null;
    set("away");
    for (const f of failureListeners) f();
    delay = Math.min(delay ? delay * 1.5 : 500, 3000);
    if (!document.hidden) timer = setTimeout(connect, delay);
  });
}

// receive reads the stream until it ends.
async function receive(signal) {
  const response = await open("/dew/v1/live/stream", { Accept: "text/event-stream" }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parsed = events(rest + value);
    rest = parsed.rest;
    for (const e of parsed.events) {
      if (e.type === "change") for (const f of [...changeListeners]) f();
      if (e.type !== "live") continue;
      delay = 0;
      last = JSON.parse(e.data);
      set("open");
      for (const f of [...listeners]) f(last);
    }
  }
}

function disconnect() {
  clearTimeout(timer);
  const own = source;
  source = null;
  if (own) own.abort();
}

// start opens the stream, and closes it while the page is hidden.
export function start() {
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  connect();
}

// stop closes the stream for good, after a logout.
export function stop() {
  stopped = true;
  disconnect();
}

// watch calls f now, after every stored change, after a reconnection, and once in a
// while for all else. It returns a function that stops this.
export function watch(f, period = 15000) {
  let running = false;
  let again = false;
  const run = async () => {
    again = running;
    if (running) return;
    running = true;
    try {
      do {
        again = false;
        await f();
      } while (again);
    } finally {
      running = false;
    }
  };
  changeListeners.add(run);
  const stops = [every(period, run), onConnection((s) => { if (s === "open") run(); }), () => changeListeners.delete(run)];
  return () => stops.forEach((stop) => stop());
}

// every calls f now and then every period milliseconds, but not while the page is
// hidden. It returns a function that stops this.
export function every(period, f) {
  let id = 0;
  let stopped = false;
  const run = async () => {
    clearTimeout(id);
    if (stopped || document.hidden) return;
    try {
      await f();
    } finally {
      if (!stopped && !document.hidden) id = setTimeout(run, period);
    }
  };
  document.addEventListener("visibilitychange", run);
  run();
  return () => {
    stopped = true;
    clearTimeout(id);
    document.removeEventListener("visibilitychange", run);
  };
}
