// Writes about apps, each with its confirmation.

import { send, list } from "./api.js";
import { h, dialog, announce } from "./dom.js";
import { visible } from "./format.js";

// run does work, and shows its result or its error. It returns whether it succeeded.
export async function run(done, work) {
  try {
    await work();
    announce(done);
    return true;
  } catch (err) {
    announce(err.status === 403 ? `You do not have permission to do this: ${err.message}` : err.message, "error");
    return false;
  }
}

const path = (app) => `/v3/apps/${encodeURIComponent(app.guid)}`;

export const start = (app) => run(`Starting ${visible(app.name)}`, () => send("POST", `${path(app)}/actions/start`));

export async function stop(app) {
  if (!await ask(`Stop ${visible(app.name)}?`, "All instances stop. Requests to its routes get status 404.", "Stop")) return false;
  return run(`Stopped ${visible(app.name)}`, () => send("POST", `${path(app)}/actions/stop`));
}

export async function restart(app) {
  if (!await ask(`Restart ${visible(app.name)}?`, "All instances stop, then start again. The app does not respond during the restart.", "Restart")) return false;
  return run(`Restarting ${visible(app.name)}`, () => send("POST", `${path(app)}/actions/restart`));
}

export async function restartInstance(app, instance) {
  if (!await ask(`Restart instance ${instance.type}/${instance.index} of ${visible(app.name)}?`, "The other instances keep running.", "Restart instance")) return false;
  return run(`Restarting instance ${instance.type}/${instance.index}`,
    () => send("DELETE", `${path(app)}/processes/${encodeURIComponent(instance.type)}/instances/${instance.index}`));
}

export async function remove(app) {
  const answer = await ask(`Delete ${visible(app.name)}?`,
    "dew deletes the app, its droplets, packages, tasks and logs. Routes and services stay. You cannot undo this.", "Delete", true);
  if (!answer) return false;
  return run(`Deleted ${visible(app.name)}`, () => send("DELETE", path(app)));
}

export async function scale(app) {
  let processes;
  try {
    processes = (await list(`${path(app)}/processes`)).resources;
  } catch (err) {
    announce(err.message, "error");
    return false;
  }
  if (!processes.length) {
    announce("The app has no processes yet. Push it first: dew push", "error");
    return false;
  }
  const number = (name, label, least, unit) => h("label", {}, h("span", {}, label), h("input", { type: "number", name, min: String(least), step: "1", required: true }), unit && h("span", { class: "unit" }, unit));
  const body = h("div", { class: "fields" },
    h("label", {}, h("span", {}, "Process"), h("select", { name: "type", onchange: () => fill() }, processes.map((p) => h("option", { value: p.type }, p.type)))),
    number("instances", "Instances", 0), number("memory", "Memory of an instance", 1, "MB"), number("disk", "Disk of an instance", 1, "MB"),
    h("p", { class: "hint" }, "A change of memory or disk applies after the next restart."));
  const field = (name) => body.querySelector(`[name=${name}]`);
  const fill = () => {
    const p = processes.find((q) => q.type === field("type").value);
    field("instances").value = p.instances;
    field("memory").value = p.memory_in_mb;
    field("disk").value = p.disk_in_mb;
  };
  fill();
  const answer = await dialog({ title: `Scale ${visible(app.name)}`, body, action: "Scale" });
  if (!answer) return false;
  const before = processes.find((p) => p.type === answer.type);
  const change = { instances: Number(answer.instances) };
  if (Number(answer.memory) !== before.memory_in_mb) change.memory_in_mb = Number(answer.memory);
  if (Number(answer.disk) !== before.disk_in_mb) change.disk_in_mb = Number(answer.disk);
  return run(`Scaled ${visible(app.name)}`, () => send("POST", `${path(app)}/processes/${encodeURIComponent(answer.type)}/actions/scale`, change));
}

export async function rollBack(app, revision) {
  if (!await ask(`Roll ${visible(app.name)} back to revision ${revision.version}?`, "A rolling deployment replaces the instances one by one.", "Roll back")) return false;
  return run(`Rolling back to revision ${revision.version}`, () => send("POST", "/v3/deployments",
    { revision: { guid: revision.guid }, relationships: { app: { data: { guid: app.guid } } } }));
}

export async function cancelDeployment(app, deployment) {
  if (!await ask("Cancel the deployment?", "dew returns to the previous droplet.", "Cancel the deployment", true)) return false;
  return run("Canceling the deployment", () => send("POST", `/v3/deployments/${deployment.guid}/actions/cancel`));
}

export const continueDeployment = (app, deployment) =>
  run("Continuing the deployment", () => send("POST", `/v3/deployments/${deployment.guid}/actions/continue`));

export async function cancelTask(app, task) {
  if (!await ask(`Cancel task ${visible(task.name)}?`, "Its process gets SIGTERM, and SIGKILL if it does not exit.", "Cancel the task")) return false;
  return run("Canceling the task", () => send("POST", `/v3/tasks/${task.guid}/actions/cancel`));
}

// ask shows a question and resolves with null if the user cancels.
export const ask = (title, text, action, danger) => dialog({ title, body: h("p", {}, text), action, danger });
