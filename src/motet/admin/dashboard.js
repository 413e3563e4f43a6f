// The dashboard. One rule above all: what members say becomes text or attributes of elements, never markup.
const SHOWN_S = 120;
const MARKS = { good: "✓", note: "i", watch: "!", bad: "✗" };
const HEADLINES = { good: "all is well", note: "all is well", watch: "have a look", bad: "not well" };
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

// Building elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}
const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const grouped = (value) => Math.round(value).toLocaleString("en-US");
const known = (value) => value !== null && value !== undefined;
const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
const short = (text, most = 14) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
function compact(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  return value >= 1e4 ? `${(value / 1e3).toFixed(0)} k` : grouped(value);
}
function milliseconds(us) {
  if (!known(us)) return "–";
  return us >= 1e6 ? `${(us / 1e6).toFixed(1)} s` : `${(us / 1000).toFixed(us < 1e4 ? 2 : 0)} ms`;
}

// Colours: one per member, in the order in which they were first seen

const colours = new Map();
function colour(member) {
  if (!colours.has(member)) colours.set(member, `c${colours.size % 8}`);
  return colours.get(member);
}

// The state of the page

let token = sessionStorage.getItem("motet-token") || "";
let samples = [];  // {at, members: {member: {delivered, median, p99, repairs, holdback}}}
let latest = null;

function keepToken(value) {
  token = value.trim();
  if (token) sessionStorage.setItem("motet-token", token);
  else sessionStorage.removeItem("motet-token");
}
const authorised = () => (token ? { Authorization: `Bearer ${token}` } : {});

// Talking to the member. fetch instead of EventSource, which cannot carry a token.

async function follow() {
  for (let wait = 1; ; wait = Math.min(wait * 2, 10)) {
    try {
      await remember();
      const response = await fetch("events", { headers: authorised(), cache: "no-store" });
      if (response.status === 401) return askForToken();
      if (!response.ok) throw new Error((await response.json()).error);
      await readEvents(response, () => { wait = 1; });
      disconnected("the member closed the connection");
    } catch (error) {
      disconnected(error instanceof TypeError ? "the member does not answer" : error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, wait * 1000));
  }
}

async function remember() {
  const response = await fetch("history", { headers: authorised(), cache: "no-store" });
  if (response.ok) samples = (await response.json()).samples;
}

async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const pieces = (rest + value).split("\n\n");
    rest = pieces.pop();
    for (const piece of pieces) {
      if (!piece.startsWith("data: ")) continue;
      onEvent();
      show(JSON.parse(piece.slice(6)));
    }
  }
}

function askForToken() {
  $("entry").hidden = false;
  $("main").hidden = true;
  status("watch", token ? "the token is wrong" : "a token is needed");
}

function disconnected(reason) {
  status("bad", `not connected: ${reason}; trying again`);
  document.body.classList.add("stale");
}

function status(level, text) {
  $("status").className = `pill ${level}`;
  $("status").textContent = text;
}

// Showing an overview

function show(overview) {
  latest = overview;
  overview.members.forEach((member) => colour(member.member));
  note(overview);
  document.body.classList.remove("stale");
  $("entry").hidden = true;
  $("main").hidden = false;
  document.title = `${MARKS[overview.level]} ${overview.group} – Motet`;
  $("group").textContent = overview.group;
  status(overview.level, `${MARKS[overview.level]} ${HEADLINES[overview.level]}`);
  const own = overview.members.find((member) => member.member === overview.self);
  $("served").textContent = `seen by ${own ? own.name : overview.self} at ${clock(overview.at)}, version ${overview.version}`;
  showWords(overview.remarks);
  showTiles(overview, own);
  showRing(overview);
  showPlots(overview);
  showMembers(overview);
  showViews(overview.views);
  showEvents(overview.events);
  showCounters(overview.counters);
  showOperations(overview, own);
  document.documentElement.dataset.shown = String(Number(document.documentElement.dataset.shown || 0) + 1);
}

function note(overview) {
  const members = {};
  for (const member of overview.members) {
    if (!member.rates) continue;
    members[member.member] = {
      delivered: member.rates.delivered_per_s, median: member.latency.median_us, p99: member.latency.p99_us,
      repairs: member.repair_share, holdback: member.holdback,
    };
  }
  samples = samples.filter((sample) => sample.at < overview.at && sample.at > overview.at - SHOWN_S - 5);
  samples.push({ at: overview.at, members });
}

let lastRemarks = "";
function showWords(remarks) {
  const text = JSON.stringify(remarks);
  if (text === lastRemarks) return;  // a screen reader would read an unchanged list out again every second
  lastRemarks = text;
  $("words").replaceChildren(...remarks.map((remark) => h("li", { class: remark.level },
    h("span", { class: "mark", "aria-hidden": "true" }, MARKS[remark.level]), h("span", {}, remark.text),
    remark.advice ? h("span", { class: "advice" }, withCode(remark.advice)) : null)));
}

const withCode = (text) => text.split("`").map((piece, i) => (i % 2 ? h("code", {}, piece) : piece));

function showTiles(overview, own) {
  const answering = overview.members.filter((member) => member.rates);
  const sum = (name) => answering.reduce((total, member) => total + member.rates[name], 0);
  const worst = Math.max(...answering.map((member) => member.latency.p99_us || 0));
  const tiles = [
    [String(overview.members.length), overview.parts.length > 1 ? `members, in ${overview.parts.length} parts` : "members"],
    [grouped(own ? own.position : 0), "log position"],
    [grouped(own ? own.position - own.stable : 0), "of it not stable yet"],
    [compact(sum("sent_per_s")), "sent per second, all"],
    [compact(sum("delivered_per_s")), "delivered per second, all"],
    [worst ? milliseconds(worst) : "–", "latency p99, worst"],
  ];
  $("tiles").replaceChildren(...tiles.map(([value, label]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label))));
}

// The ring. Each part of the group has a circle of its own; whoever was lost stands apart.

function showRing(overview) {
  const members = new Map(overview.members.map((member) => [member.member, member]));
  const placed = new Set(overview.parts.flatMap((part) => part.members));
  const lost = overview.members.filter((member) => !placed.has(member.member)).map((member) => member.member);
  const circles = overview.parts.map((part) => ({ kind: part.primary ? "major" : "minor", view: part.view, members: part.members }));
  if (lost.length) circles.push({ kind: "lost", view: "", members: lost });
  const [width, height] = arrange(circles);
  const places = new Map(circles.flatMap((circle) => circle.members.map((member, i) => [member, placeIn(circle, i)])));
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": inWords(overview) },
    circles.map(drawHull), drawGaps(circles), drawLinks(overview, circles, places),
    [...places].map(([member, place]) => drawNode(members.get(member), place, overview)));
  $("ring").replaceChildren(drawing);
  const legend = ["★ coordinator", "◎ serves this page", "dashed circle: known from others only", "dashed line: frames missing just now"];
  $("ring-legend").replaceChildren(...legend.map((text) => h("span", {}, text)));
}

// Circles stand side by side on a wide screen, and one above the other on a phone.
function arrange(circles) {
  const stacks = window.matchMedia("(max-width: 760px)").matches;
  const radii = circles.map((circle) => (circle.members.length < 2 ? 30 : Math.min(170, 58 + circle.members.length * 13)));
  const hulls = radii.map((radius) => radius + 66);
  const widest = 2 * Math.max(...hulls) + 8, gap = 34, caption = 26;
  let along = 4;
  circles.forEach((circle, i) => {
    const centre = along + hulls[i];
    Object.assign(circle, { radius: radii[i], hull: hulls[i], x: stacks ? widest / 2 : centre, y: stacks ? centre : widest / 2 });
    along += 2 * hulls[i] + gap + (stacks ? caption : 0);
  });
  return stacks ? [widest, along - gap + 4] : [along - gap + 4, widest + caption];
}

function placeIn(circle, i) {
  const count = circle.members.length;
  if (count === 1) return { x: circle.x, y: circle.y };
  const angle = -Math.PI / 2 + (2 * Math.PI * i) / count;
  return { x: circle.x + circle.radius * Math.cos(angle), y: circle.y + circle.radius * Math.sin(angle) };
}

function drawHull(circle) {
  const kind = { major: "", minor: "minor", lost: "lost" }[circle.kind];
  const name = { major: `view ${circle.view}, primary`, minor: `view ${circle.view}, not primary`, lost: "not answering" }[circle.kind];
  return [s("circle", { class: `hull ${kind}`, cx: circle.x, cy: circle.y, r: circle.hull }),
    s("text", { class: `hull-name ${kind || "good"}`, x: circle.x, y: circle.y + circle.hull + 18 }, short(name, 40))];
}

function drawGaps(circles) {
  return circles.slice(1).map((circle, i) => {
    const before = circles[i], stacks = before.x === circle.x;
    const middle = stacks ? circle.y - circle.hull - 10 : (before.x + before.hull + circle.x - circle.hull) / 2;
    const line = stacks ? { x1: circle.x - 90, x2: circle.x + 90, y1: middle, y2: middle } : { x1: middle, x2: middle, y1: circle.y - 90, y2: circle.y + 90 };
    const mark = stacks ? { x: circle.x - 104, y: middle + 5 } : { x: middle, y: circle.y - 98 };
    return [s("line", { class: "gap", ...line }), s("text", { class: "gap-mark", ...mark }, "✂")];
  });
}

function drawLinks(overview, circles, places) {
  const missing = new Map();
  for (const link of overview.links) {
    const key = [link.from, link.to].sort().join(" ");
    missing.set(key, (missing.get(key) || 0) + link.missing);
  }
  const drawn = [];
  for (const circle of circles.filter((circle) => circle.kind !== "lost")) {
    circle.members.forEach((from, i) => circle.members.slice(i + 1).forEach((to) => {
      const lacks = missing.get([from, to].sort().join(" "));
      if (circle.members.length > 16 && !lacks) return;  // all links of a large group are a grey disk
      drawn.push(drawLink(places.get(from), places.get(to), lacks));
    }));
  }
  return drawn;
}

function drawLink(from, to, lacks) {
  const line = s("line", { class: lacks ? "link lossy" : "link", x1: from.x, y1: from.y, x2: to.x, y2: to.y });
  if (!lacks) return line;
  return [line, s("text", { class: "link-text", x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 + 4 }, `${lacks} missing`)];
}

function drawNode(member, place, overview) {
  const silent = member.source === "silent";
  const mark = silent ? "?" : MARKS[member.level === "note" ? "good" : member.level];
  const level = silent ? "silent" : member.level;
  const behind = known(member.position) ? Math.max(0, furthest(overview) - member.position) : null;
  const notes = [behind === null ? "" : behind ? `${grouped(behind)} behind` : "up to date"];
  return s("g", {}, s("title", {}, `${member.name} (${member.member}) ${member.endpoint}`),
    s("circle", { class: `node ${level} ${member.source}`, cx: place.x, cy: place.y, r: 21 }),
    member.source === "self" ? s("circle", { class: "halo", cx: place.x, cy: place.y, r: 26 }) : null,
    s("text", { class: `node-mark ${level}`, x: place.x, y: place.y }, mark),
    member.coordinator ? s("path", { class: "crown", d: star(place.x + 19, place.y - 19, 10) }) : null,
    s("text", { class: "node-name", x: place.x, y: place.y + 39 }, short(member.name)),
    s("text", { class: "node-note", x: place.x, y: place.y + 54 }, notes[0]),
    member.repair_share >= 0.01
      ? s("text", { class: "node-note loss", x: place.x, y: place.y - 30 }, `${percent(member.repair_share)} sent again`) : null);
}

function star(x, y, r) {
  const points = [...Array(10).keys()].map((i) => {
    const radius = i % 2 ? r * 0.45 : r, angle = -Math.PI / 2 + (i * Math.PI) / 5;
    return `${(x + radius * Math.cos(angle)).toFixed(1)} ${(y + radius * Math.sin(angle)).toFixed(1)}`;
  });
  return `M${points.join("L")}Z`;
}

const furthest = (overview) => Math.max(...overview.members.map((member) => member.position || 0));

function inWords(overview) {
  const names = new Map(overview.members.map((member) => [member.member, member.name]));
  return overview.parts.map((part) => `${part.primary ? "primary" : "not primary"} view ${part.view}: `
    + part.members.map((member) => names.get(member)).join(", ")).join("; ");
}

// Plots

function showPlots(overview) {
  const members = overview.members.filter((member) => samples.some((sample) => sample.members[member.member]));
  const each = (name) => members.map((member) => ({ colour: colour(member.member),
    points: samples.map((sample) => [sample.at, sample.members[member.member]?.[name]]) }));
  const over = (name, gather) => samples.map((sample) => {
    const values = Object.values(sample.members).map((value) => value[name]).filter(known);
    return [sample.at, values.length ? gather(values) : null];
  });
  const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const worst = (values) => Math.max(...values);
  $("plots").replaceChildren(
    plot("Delivered per second", overview.at, each("delivered"), compact, worst),
    plot("Latency; dashed: p99, worst", overview.at, [
      { colour: "c4", points: over("median", middle) }, { colour: "c1", dashed: true, points: over("p99", worst) }], milliseconds, worst),
    plot("Frames sent again: normal under loss", overview.at, each("repairs"), percent, worst, 0.01),
    plot("Frames whose order is not agreed", overview.at, each("holdback"), compact, worst, 10));
  $("plot-legend").replaceChildren(...members.map((member) =>
    h("span", {}, h("span", { class: `dot ${colour(member.member)}`, "aria-hidden": "true" }), short(member.name, 24))));
}

function plot(title, now, series, format, gather, least = 1) {
  const width = 340, height = 185, left = 54, bottom = 18, top = 8;
  const values = series.flatMap((line) => line.points.map(([, value]) => value)).filter(known);
  const most = niceAbove(Math.max(least, ...values));
  const x = (at) => left + (1 - (now - at) / SHOWN_S) * (width - left - 6);
  const y = (value) => top + (1 - value / most) * (height - bottom - top);
  const current = series.map((line) => line.points.at(-1)?.[1]).filter(known);
  const reading = current.length ? format(gather(current)) : "–";
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: now ${reading}, highest ${format(values.length ? Math.max(...values) : 0)}` },
    [0, 0.5, 1].map((share) => [
      s("line", { class: "axis", x1: left, x2: width, y1: y(share * most), y2: y(share * most) }),
      s("text", { class: "tick", x: left - 5, y: y(share * most) + 4, "text-anchor": "end" }, share ? format(share * most) : "0")]),
    s("text", { class: "tick", x: left, y: height - 3 }, "2 min ago"),
    s("text", { class: "tick", x: width, y: height - 3, "text-anchor": "end" }, "now"),
    series.map((line) => s("path", { class: `series ${line.colour}${line.dashed ? " dashed" : ""}`, d: path(line.points, x, y, left) })));
  return h("figure", { class: "plot" }, h("figcaption", {}, h("span", {}, title), h("b", {}, reading)), drawing);
}

function path(points, x, y, left) {
  let pen = "M", d = "";
  for (const [at, value] of points) {
    if (!known(value) || x(at) < left) { pen = "M"; continue; }  // the line has a gap where no sample exists
    d += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  }
  return d;
}

function niceAbove(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= value * 1.02) || 10 * size;
}

// Tables and lists

function showMembers(overview) {
  const head = ["member", "role", "position", "stable", "send window", "hold-back", "queue", "sent again", "latency"];
  const rows = overview.members.map((member) => memberRow(member, overview, head));
  const figures = new Set(["position", "stable", "hold-back", "queue", "sent again", "latency"]);
  $("members").replaceChildren(
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col", class: figures.has(name) ? "figure" : null }, name)))),
    h("tbody", {}, rows));
}

function memberRow(member, overview, head) {
  const behind = known(member.position) ? furthest(overview) - member.position : 0;
  const far = behind >= 1000 ? "warn" : null;
  const cell = (i, figure, ...content) => h("td", { "data-label": head[i], class: figure ? "figure" : null }, ...content);
  const name = cell(0, false, h("span", { class: `dot ${colour(member.member)}`, "aria-hidden": "true" }), h("b", {}, short(member.name, 40)),
    h("small", {}, `${member.member} ${member.endpoint}`));
  const position = known(member.position)
    ? [grouped(member.position), behind ? h("small", { class: far }, `${grouped(behind)} behind`) : null] : ["?"];
  const rest = member.rates ? [bar(member.window), grouped(member.holdback),
    [grouped(member.queue.messages), member.queue.paused ? h("small", { class: "warn" }, "too slow") : null],
    percent(member.repair_share), [milliseconds(member.latency.median_us), h("small", {}, `p99 ${milliseconds(member.latency.p99_us)}`)]]
    : ["", "", "", "", ""];
  return h("tr", {}, name, cell(1, false, roles(member)), cell(2, true, position),
    cell(3, true, known(member.stable) ? grouped(member.stable) : "?"), rest.map((content, i) => cell(4 + i, i > 0, content)));
}

function roles(member) {
  const tag = (text, level) => h("span", { class: `tag ${level}` }, text);
  return [member.coordinator ? tag("coordinator", "") : null, member.source === "self" ? tag("this one", "") : null,
    member.primary === true ? tag("primary", "good") : null, member.primary === false ? tag("not primary", "bad") : null,
    member.source === "silent" ? tag("not answering", "watch") : null, member.source === "reported" ? tag("no admin port", "") : null,
    ...(member.suspects || []).map((suspect) => tag(`suspects ${short(suspect, 24)}`, "watch")),
    ...(member.busy || []).map((peer) => tag(`${short(peer, 24)} is busy`, "watch")),
    ...(member.faults || []).map((rule) => tag(`fault ${short(rule, 40)}`, "watch"))];
}

function bar(share) {
  const inner = h("i");
  inner.style.width = `${Math.round(share * 100)}%`;
  return [percent(share), h("span", { class: share > 0.95 ? "bar full" : "bar", "aria-hidden": "true" }, inner)];
}

function showViews(views) {
  $("views").replaceChildren(...[...views].reverse().map((view) => h("li", {}, h("time", {}, clock(view.at)),
    h("span", {}, h("span", { class: `tag ${view.primary ? "good" : "bad"}` }, view.primary ? "primary" : "not primary"),
      view.merged_from.length ? h("span", { class: "tag" }, `merge of ${view.merged_from.join(" + ")}`) : null,
      `${view.id}: ${view.members.join(", ")}`))));
}

function showEvents(events) {
  $("events").replaceChildren(...[...events].reverse().map((event) => h("li", {}, h("time", {}, clock(event.at)),
    h("span", {}, h("span", { class: "tag" }, event.kind), event.text))));
}

function showCounters(counters) {
  const natures = { work: "grows with the traffic", repair: "normal where datagrams are lost", change: "normal when members join, leave or merge", rejected: "investigate if it keeps growing" };
  $("counters").replaceChildren(
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "counter"), h("th", { scope: "col", class: "figure" }, "value"),
      h("th", { scope: "col", class: "figure" }, "per second"), h("th", { scope: "col" }, "meaning"), h("th", { scope: "col" }, "when it grows"))),
    h("tbody", {}, counters.map((count) => h("tr", {}, h("td", {}, count.name), h("td", { class: "figure" }, grouped(count.value)),
      h("td", { class: "figure" }, count.per_s ? grouped(count.per_s) : ""), h("td", {}, count.meaning), h("td", {}, natures[count.nature] || "")))));
}

// Operations

let offered = "";
function showOperations(overview, own) {
  $("operate-self").textContent = own ? own.name : overview.self;
  $("token-row").hidden = !overview.needs_token;
  const peers = overview.members.filter((member) => member.member !== overview.self).map((member) => member.name);
  const offer = JSON.stringify([peers, overview.fault_presets]);
  if (offer === offered) return;  // nothing is taken from under a finger
  offered = offer;
  const chosen = $("peer").value;
  $("peer").replaceChildren(h("option", { value: "" }, "everybody"), ...peers.map((name) => h("option", { value: name }, short(name, 40))));
  if (peers.includes(chosen)) $("peer").value = chosen;
  $("presets").replaceChildren(...overview.fault_presets.map((preset) => {
    const button = h("button", { type: "button" }, preset.label);
    button.addEventListener("click", () => makeFault(preset));
    return button;
  }));
}

function makeFault(preset) {
  const peer = $("peer").value;
  if (preset.needs_peer && !peer) return outcome("bad", "choose whom to cut off first");
  const ends = preset.rule === "clear";
  const rule = preset.needs_peer ? preset.rule.replace("PEER", () => peer) : preset.rule + (peer && !ends ? `@${peer}` : "");
  return operate("fault", { rule });
}

function outcome(level, text) {
  $("outcome").className = level;
  $("outcome").textContent = text;
}

async function operate(name, argument) {
  if ($("token").value) keepToken($("token").value);
  outcome("", `${name} …`);
  try {
    const response = await fetch(`operate/${name}`, { method: "POST",
      headers: { "Content-Type": "application/json", ...authorised() }, body: JSON.stringify(argument) });
    const answer = await response.json();
    if (response.ok) outcome("good", `done: ${name} ${argument.rule || ""}`);
    else outcome("bad", answer.error);
  } catch (error) {
    outcome("bad", `the member does not answer (${error.message})`);
  }
}

$("operate-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("rule").value.trim()) operate("fault", { rule: $("rule").value.trim() });
});
$("snapshot").addEventListener("click", () => operate("snapshot", {}));
$("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken($("entry-token").value);
  follow();
});
follow();
