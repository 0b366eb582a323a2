"use strict";
// Asks for the numbers once a second, and shows them. Whatever comes from the proxy is put in as text, never
// as HTML.

const EVERY_MS = 1000;
const HISTORY = 120;
const ROWS = 100;
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const past = new Map(); // Of each link, rates of late.
let moved = new Map(); // Of each connection, what it had moved, and when.

const $ = (id) => document.getElementById(id);

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content.map((one) => (one instanceof Node ? one : String(one))));
  return made;
}

function scaled(value, units, base) {
  let unit = 0;
  while (value >= 999.95 && unit + 1 < units.length) {
    value /= base;
    unit += 1;
  }
  return (unit === 0 ? Math.round(value) : value.toFixed(1)) + " " + units[unit];
}
const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);
const rate = (n) => scaled(8 * n, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);
const milliseconds = (us) => (us === null ? "–" : us < 10000 ? (us / 1000).toFixed(1) + " ms" : Math.round(us / 1000) + " ms");
const percent = (n, digits) => (n === null ? "–" : n.toFixed(digits) + " %");
const two = (n) => String(n).padStart(2, "0");

function duration(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 3) return seconds.toFixed(1) + " s";
  if (whole < 60) return whole + " s";
  if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
  if (whole < 86400) return Math.floor(whole / 3600) + " h " + two(Math.floor(whole / 60) % 60) + " min";
  return Math.floor(whole / 86400) + " d " + two(Math.floor(whole / 3600) % 24) + " h";
}

const plural = (n, what) => n + " " + what + (n === 1 ? "" : "s");

// What a state means, where the word alone does not say it.
const WHY = {
  dead: "It does not answer. The other links carry on; it is used again when it answers.",
  absent: "There is no such interface now, or it is down or has no address.",
  spent: "It has carried what it may. It is used again when the next period begins.",
  unused: "Nothing uses it now.",
  backup: "",
  up: "",
};

const keyOf = (link) => JSON.stringify([link.client, link.name]);

// Remembers the rates of all links; returns the highest, so that all charts have one scale.
function remember(links) {
  const keys = new Set(links.map(keyOf));
  for (const key of past.keys()) if (!keys.has(key)) past.delete(key);
  for (const link of links) {
    const rates = past.get(keyOf(link)) ?? [];
    rates.push([link.received_rate_bytes, link.sent_rate_bytes]);
    if (rates.length > HISTORY) rates.shift();
    past.set(keyOf(link), rates);
  }
  return Math.max(12500, ...[...past.values()].flat(2));
}

function chart(link, most) {
  const rates = past.get(keyOf(link));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 " + (HISTORY - 1) + " 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "rates of the last two minutes, at most " + rate(most));
  const from = HISTORY - rates.length;
  for (const [index, name] of [[0, "in"], [1, "out"]]) {
    const points = rates.map((one, at) => (from + at) + " " + (39 - (37 * one[index]) / most).toFixed(2));
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const area = name === "in" ? "M" + from + " 41L" + points.join("L") + "L" + HISTORY + " 41Z" : "M" + points.join("L");
    path.setAttribute("d", area);
    path.setAttribute("class", name);
    svg.append(path);
  }
  const scale = element("figcaption", "", rate(most));
  return element("figure", "", svg, scale);
}

function numbers(pairs) {
  const list = element("dl", "numbers");
  for (const [name, value] of pairs) {
    list.append(element("div", "", element("dt", "", name), element("dd", "", value)));
  }
  return list;
}

function linkCard(link, most) {
  const card = element("article", "link " + link.state);
  card.append(element("h3", "", element("span", "", link.name), element("span", "pill " + link.state, link.state)));
  if (link.client !== null) card.append(element("p", "of", "of " + link.client));
  if (WHY[link.state]) card.append(element("p", "why", WHY[link.state]));
  const arrow = (name, sign, value) => element("span", name, sign + " ", element("b", "", rate(value)));
  card.append(element("p", "rates", arrow("in", "↓", link.received_rate_bytes), arrow("out", "↑", link.sent_rate_bytes)));
  card.append(chart(link, most));
  const bar = element("div", "bar", element("i", ""));
  bar.firstChild.style.width = link.share_percent.toFixed(1) + "%";
  card.append(bar);
  card.append(
    numbers([
      [link.client === null ? "share of all" : "share of its", percent(link.share_percent, 0)],
      ["round trip", milliseconds(link.rtt_us)],
      ["lost ↑", percent(link.loss_percent, 1)],
      ["subflows", link.subflows],
      ["received", bytes(link.received_bytes)],
      ["sent", bytes(link.sent_bytes)],
      ["sent again", plural(link.retransmissions, "packet")],
      ...(link.cap_bytes === null ? [] : [["cap", bytes(link.cap_used_bytes) + " of " + bytes(link.cap_bytes)]]),
      ...(link.cost ? [["cost", link.cost]] : []),
    ]),
  );
  return card;
}

// Where a connection went that has ended, and why, if not in order.
function ended(row) {
  const where = row.destination + (row.protocol === "udp" ? " (datagrams)" : "");
  return row.error === null ? where : element("span", "", where, element("br"), element("span", "error", row.error));
}

// A table. Columns: name, class, what a row has there.
function table(id, columns, rows) {
  const head = element("tr", "");
  for (const [name, className] of columns) {
    const cell = element("th", className, name);
    cell.scope = "col";
    head.append(cell);
  }
  const line = (row) => element("tr", "", ...columns.map(([, className, of]) => element("td", className, of(row) ?? "")));
  $(id).hidden = rows.length === 0;
  $(id).replaceChildren(element("thead", "", head), element("tbody", "", ...rows.map(line)));
}

function say(id, text) {
  $(id).hidden = !text;
  $(id).textContent = text;
}

function where(status) {
  const word = { socks: "SOCKS5 at ", http: "HTTP at ", trunks: "clients at " };
  return status.listening.map((one) => (word[one.door] ?? "") + one.address).join(", ");
}

function show(status) {
  const isServer = status.role === "server";
  document.title = status.role + " · anabranch proxy";
  $("role").textContent = status.role;
  $("about").textContent =
    (status.server === null ? "" : "to " + status.server + " · ") + where(status) + " · up " + duration(status.uptime_s);

  const sum = (of) => status.links.reduce((all, link) => all + link[of], 0);
  const total = (name, value, note) =>
    element("div", "", element("dt", "", name), element("dd", "", value), element("dd", "note", note));
  const { connections, failed, sent_bytes, received_bytes } = status.totals;
  const subflows = status.trunks.reduce((all, trunk) => all + trunk.subflows.length, 0);
  $("totals").replaceChildren(
    total("received now", rate(sum("received_rate_bytes")), bytes(sum("received_bytes")) + " in all"),
    total("sent now", rate(sum("sent_rate_bytes")), bytes(sum("sent_bytes")) + " in all"),
    total("connections", status.open_connections, status.datagram_flows > 0 ? "and " + status.datagram_flows + " with datagrams" : "open"),
    total("ended", connections, failed + " failed"),
    total("trunks", status.trunks.length, plural(subflows, "subflow") + (status.transport ? " · " + status.transport : "")),
  );

  say("links-none", status.links.length > 0 ? "" : isServer ? "No client is connected." : "The server is not connected yet.");
  const most = remember(status.links);
  $("links").replaceChildren(...status.links.map((link) => linkCard(link, most)));

  $("clients-section").hidden = !isServer || status.clients.length === 0;
  table("clients", [
    ["client", "name", (row) => row.name],
    ["connections", "number", (row) => row.open_connections],
    ["↓ from it", "number", (row) => rate(row.received_rate_bytes)],
    ["↑ to it", "number", (row) => rate(row.sent_rate_bytes)],
    ["received", "number less", (row) => bytes(row.received_bytes)],
    ["sent", "number less", (row) => bytes(row.sent_bytes)],
    ["links", "number less", (row) => row.links],
    ["trunks", "number less", (row) => row.trunks],
  ], status.clients);

  const before = moved;
  moved = new Map(status.connections.map((row) => [row.number, [row.sent_bytes, row.received_bytes, row.age_s]]));
  const rateOf = (row, index) => {
    const [then, now] = [before.get(row.number), moved.get(row.number)];
    return then && now[2] > then[2] ? (now[index] - then[index]) / (now[2] - then[2]) : 0;
  };
  const rates = new Map(status.connections.map((row) => [row.number, [rateOf(row, 0), rateOf(row, 1)]]));
  const busiest = [...status.connections].sort((a, b) => {
    const speed = (row) => rates.get(row.number)[0] + rates.get(row.number)[1];
    return speed(b) - speed(a) || b.number - a.number;
  });
  const socks = status.listening.find((one) => one.door === "socks");
  const http = status.listening.find((one) => one.door === "http");
  const hint = socks ? "socks5h://" + socks.address : http ? "http://" + http.address : "";
  const hasNames = [...status.connections, ...status.finished].some((row) => row.client !== null);
  const who = hasNames ? [[isServer ? "client" : "user", "less", (row) => row.client]] : [];
  const none = "No program is connected." + (hint ? " Point one at " + hint + "." : "");
  const drain = status.drain;
  say("drain", drain === null ? "" :
    "Drain: " + drain.state + " · " + drain.told + " of " + (drain.told + drain.waiting) + " clients told, " + drain.rate.toFixed(2) +
    "/s · " + plural(drain.present, "client") + " here with " + plural(drain.open_connections, "connection") +
    (drain.left_s === null || drain.state === "ended" ? "" : " · " + duration(drain.left_s) + " left") +
    (drain.to === null ? "" : " · to " + drain.to));
  $("servers-section").hidden = status.servers.length < 2;
  table("servers", [
    ["server", "name", (row) => row.name + (row.is_named_by_server ? " (named by another)" : "")],
    ["round trip", "number", (row) => milliseconds(row.rtt_us)],
    ["load", "number", (row) => row.capacity ? row.open + " of " + row.capacity : "–"],
    ["state", "", (row) => row.state + (row.why === null ? "" : ": " + row.why)],
  ], status.servers);

  say("connections-none", status.open_connections > 0 ? "" : none);
  table("connections", [
    ["destination", "name", (row) => row.destination + (row.origin && row.origin !== row.destination ? " (" + row.origin + ")" : "")],
    ["↓", "number", (row) => rate(rates.get(row.number)[1])],
    ["↑", "number less", (row) => rate(rates.get(row.number)[0])],
    ["received", "number", (row) => bytes(row.received_bytes)],
    ["sent", "number less", (row) => bytes(row.sent_bytes)],
    ["since", "number", (row) => duration(row.age_s)],
    ["state", "less", (row) => row.state.replace("_", " ")],
    ...who,
    ["from", "less", (row) => row.from],
  ], busiest.slice(0, ROWS));
  const more = status.open_connections - Math.min(busiest.length, ROWS);
  say("connections-more", more > 0 ? "… and " + more + " more" : "");

  say("finished-none", status.finished.length > 0 ? "" : "None yet.");
  table("finished", [
    ["destination", "name", ended],
    ["received", "number", (row) => bytes(row.received_bytes)],
    ["sent", "number less", (row) => bytes(row.sent_bytes)],
    ["lasted", "number", (row) => duration(row.duration_s)],
    ...who,
    ["from", "less", (row) => row.from],
  ], status.finished);

  table("trunks", [
    ["trunk", "", (row) => row.trunk],
    ["link", "", (row) => row.link],
    ["remote", "less", (row) => row.remote],
    ["round trip", "number", (row) => milliseconds(row.rtt_us)],
    ["window", "number less", (row) => plural(row.cwnd, "packet")],
    ["received", "number", (row) => bytes(row.received_bytes)],
    ["sent", "number", (row) => bytes(row.sent_bytes)],
    ["again", "number less", (row) => row.retransmissions],
  ], status.trunks.flatMap((trunk, at) => trunk.subflows.map((subflow, place) => ({
    ...subflow,
    trunk: place > 0 ? "" : (trunk.client ?? at + 1) + " · " + trunk.transport + " · " + plural(trunk.open_streams, "stream"),
  }))));
}

function trouble(text) {
  say("trouble", text);
  $("main").classList.toggle("stale", Boolean(text));
}

async function look() {
  try {
    const headers = { Authorization: "Bearer " + token };
    const answer = await fetch("status.json", { headers, cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) {
      trouble("The token is wrong: it belongs to another proxy, or its file was made anew.");
    } else if (!answer.ok) {
      trouble("The proxy answers " + answer.status + ".");
    } else {
      show(await answer.json());
      trouble("");
      $("main").hidden = false;
    }
  } catch {
    trouble("The proxy does not answer: it has ended, or cannot be reached. What stands here is old.");
  }
}

async function run() {
  if (!document.hidden) await look();
  setTimeout(run, EVERY_MS);
}

if (token === null) {
  trouble("The address of this page lacks its token. It ends with #token=…, as the proxy prints it when it starts on a terminal; the token is in the file that it names else.");
} else {
  run();
}
