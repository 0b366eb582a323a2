"use strict";
// The token stands behind # in the address, which a browser sends to no server.
const token = "token:" + decodeURIComponent(location.hash.slice(1));
const KEYS = ["gid", "status", "totalLength", "completedLength", "downloadSpeed", "files", "errorMessage"];
const SHOWN = 100;

const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};
const byId = (id) => document.getElementById(id);

function amount(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let number = Number(bytes);
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return number.toFixed(unit > 0 && number < 100 ? 1 : 0) + " " + units[unit];
}

async function call(method, ...params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: "page", method, params: [token, ...params] });
  const answer = await (await fetch("jsonrpc", { method: "POST", body })).json();
  if (answer.error) throw new Error(answer.error.message);
  return answer.result;
}

function tell(problem) {
  const wants = problem === "Unauthorized" ? "The address must end in # and the token, as the daemon prints it." : problem;
  byId("problem").hidden = !wants;
  byId("problem").textContent = wants;
}

const act = (method, gid) => call(method, gid).then(refresh, (error) => tell(error.message));

function button(text, method, gid) {
  const made = element("button", text);
  made.addEventListener("click", () => act(method, gid));
  return made;
}

function row(job) {
  const made = element("tr");
  const file = job.files[0];
  const path = file.path || (file.uris[0] && file.uris[0].uri) || job.gid;
  const name = element("td", path.slice(path.lastIndexOf("/") + 1));
  name.title = path;
  if (job.errorMessage) name.append(element("div", job.errorMessage, "why"));
  const total = Number(job.totalLength);
  const done = element("td", total ? amount(job.completedLength) + " of " + amount(total) : "", "number");
  if (total && job.status !== "complete") {
    const bar = element("progress");
    bar.max = total;
    bar.value = Number(job.completedLength);
    done.append(bar);
  }
  const rate = element("td", job.status === "active" ? amount(job.downloadSpeed) + "/s" : "", "number");
  const buttons = element("td", undefined, "number");
  if (job.status === "active" || job.status === "waiting") buttons.append(button("Pause", "aria2.pause", job.gid));
  if (job.status === "paused") buttons.append(button("Resume", "aria2.unpause", job.gid));
  const ended = ["complete", "error", "removed"].includes(job.status);
  buttons.append(ended ? button("Forget", "aria2.removeDownloadResult", job.gid) : button("Remove", "aria2.remove", job.gid));
  made.append(name, element("td", job.status), done, rate, buttons);
  return made;
}

function pathRow(path) {
  const made = element("tr", undefined, "path");
  made.append(element("td", path.source + " via " + path.via), element("td", path.state));
  made.append(element("td", amount(path.bytes), "number"), element("td", amount(path.rate_bytes) + "/s", "number"));
  made.append(element("td"));
  return made;
}

async function refresh() {
  try {
    const [sums, active, waiting, stopped] = await Promise.all([
      call("aria2.getGlobalStat"), call("aria2.tellActive", KEYS),
      call("aria2.tellWaiting", 0, SHOWN, KEYS), call("aria2.tellStopped", -1, SHOWN, KEYS),
    ]);
    const paths = await Promise.all(active.slice(0, SHOWN).map((job) => call("anabranch.tellPaths", job.gid).catch(() => [])));
    const rows = active.slice(0, SHOWN).flatMap((job, index) => [row(job), ...paths[index].map(pathRow)]);
    byId("jobs").replaceChildren(...rows, ...waiting.map(row), ...stopped.map(row));
    byId("sums").textContent = amount(sums.downloadSpeed) + "/s, " + sums.numActive + " active, " + sums.numWaiting +
      " waiting, " + sums.numStopped + " ended";
    const left = Number(sums.numActive) + Number(sums.numWaiting) + Number(sums.numStopped) - active.length - waiting.length - stopped.length;
    byId("more").textContent = left > 0 ? "and " + left + " more" : "";
    tell("");
  } catch (error) {
    tell(error.message);
  }
}

byId("new").addEventListener("submit", (event) => {
  event.preventDefault();
  const uris = byId("uris").value.split(/\s+/).filter((uri) => uri);
  call("aria2.addUri", uris).then(() => {
    byId("new").reset();
    return refresh();
  }, (error) => tell(error.message));
});

async function repeat() {
  if (!document.hidden) await refresh();
  setTimeout(repeat, 1000);
}
window.addEventListener("hashchange", () => location.reload());
repeat();
