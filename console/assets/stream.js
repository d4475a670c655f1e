// The live state of all apps: one event stream for the whole page. It is closed while
// the page is hidden, and it reconnects by itself.

const listeners = new Set();
const statusListeners = new Set();
const failureListeners = new Set();
let source = null;
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
  source = new EventSource("/dew/v1/live/stream");
  source.addEventListener("live", (e) => {
    delay = 0;
    last = JSON.parse(e.data);
    set("open");
    for (const f of [...listeners]) f(last);
  });
  source.onopen = () => { delay = 0; };
  source.onerror = () => {
    disconnect();
    set("away");
    for (const f of failureListeners) f();
    delay = Math.min(delay ? delay * 1.5 : 500, 3000);
    if (!document.hidden) timer = setTimeout(connect, delay);
  };
}

function disconnect() {
  clearTimeout(timer);
  if (source) source.close();
  source = null;
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
