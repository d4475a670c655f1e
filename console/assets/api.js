// Requests to dewd. The session is a cookie. Every request also has the page's token,
// which the browser stores for this origin only.

const tokenKey = "dew.token";
// setToken stores the page's token, or deletes it.
export const setToken = (token) => (token ? localStorage.setItem(tokenKey, token) : localStorage.removeItem(tokenKey));
const token = () => localStorage.getItem(tokenKey) || "";

// protocols returns the protocols of a WebSocket, one of them with the page's token.
export const protocols = () => ["dew.console", `dew.token.${token()}`];

// ApiError is a response with an error status, or status 0 if there was none.
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const onLoggedOut = new Set();
// whenLoggedOut calls f when dewd no longer accepts the session.
export const whenLoggedOut = (f) => onLoggedOut.add(f);

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options, headers: { "X-CSRF-Token": token(), ...options.headers } });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new ApiError(0, "dewd does not respond");
  }
  if (response.ok) return response;
  if (response.status === 401) for (const f of onLoggedOut) f();
  throw new ApiError(response.status, await detailOf(response));
}

async function detailOf(response) {
  try {
    const body = JSON.parse(await response.text());
    if (body.errors && body.errors.length) return body.errors.map((e) => e.detail).join("; ");
    return body.error_description || body.error || response.statusText;
  } catch {
    return `${response.status} ${response.statusText}`.trim();
  }
}

// get returns the JSON of a resource.
export async function get(path, query = {}, signal = undefined) {
  return (await request(withQuery(path, query), { signal })).json();
}

// withQuery appends query parameters. It leaves out empty ones.
export function withQuery(path, query) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== null && v !== "") q.set(k, v);
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

// list returns all resources of a list, and the included ones.
export async function list(path, query = {}, signal = undefined) {
  const out = { resources: [], included: {}, total: 0 };
  for (let page = 1; ; page++) {
    const body = await get(path, { per_page: 1000, page, ...query }, signal);
    out.resources.push(...body.resources);
    out.total = body.pagination ? body.pagination.total_results : out.resources.length;
    for (const [kind, values] of Object.entries(body.included || {})) out.included[kind] = (out.included[kind] || []).concat(values);
    if (query.page || query.limit || !body.pagination || !body.pagination.next) return out;
  }
}

// send writes. It waits for the job if the response names one.
export async function send(method, path, body) {
  const response = await request(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const job = response.status === 202 && response.headers.get("Location");
  if (job) return finish(new URL(job, location.href).pathname);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

async function finish(path) {
  for (let wait = 200; ; wait = Math.min(wait * 1.5, 2000)) {
    const job = await get(path);
    if (job.state === "COMPLETE") return job;
    if (job.state === "FAILED") throw new ApiError(422, job.errors.map((e) => e.detail).join("; ") || "The job failed");
    await new Promise((done) => setTimeout(done, wait));
  }
}

// open starts a request whose body is read as a stream.
export const open = (path, headers, signal) => request(path, { headers, signal });
