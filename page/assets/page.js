// The page of muster serve works without this file. With it, the page changes as ZooKeeper does: it applies patches from
// the stream, keeps times relative, filters while one types, and listens to a few keys.
"use strict";
(() => {
const body = document.body;
const byID = id => document.getElementById(id);
let here = location.pathname + location.search; // what the page shows
let version = body.dataset.version;             // of that, which the server counts

// ---- Times: absolute from the server, relative here. ----

const times = document.getElementsByTagName("time"); // live
const due = new WeakMap();                            // element -> when its text changes

function relative(ms) {
  const s = Math.floor(Math.abs(ms) / 1000);
  const [n, unit, span] = s < 60 ? [s, "s", 1] : s < 7200 ? [Math.floor(s / 60), "m", 60]
    : s < 172800 ? [Math.floor(s / 3600), "h", 3600] : [Math.floor(s / 86400), "d", 86400];
  return [n + unit, span * 1000];
}

function showTime(el, now) {
  const at = Date.parse(el.dateTime);
  if (Number.isNaN(at)) return;
  if (!el.title) el.title = el.textContent;
  const ahead = at - now > 5000; // less is the difference between two clocks
  const [text, span] = relative(ahead ? at - now : Math.max(0, now - at));
  const of = el.parentElement.classList, soon = of.contains("due") && now - at < 5000;
  const shown = ahead ? "in " + text : soon ? "now" : of.contains("age") ? text : text + " ago";
  if (el.textContent !== shown) el.textContent = shown;
  due.set(el, now + (ahead ? 1000 : span - Math.max(0, now - at) % span));
}

function showTimes() {
  const now = Date.now();
  for (const el of times) if (!(due.get(el) > now)) showTime(el, now);
}

// ---- Elements: the old one becomes like the new one, in place, so that focus, selection and scroll stay. ----

const ours = new Set(["open", "aria-selected", "aria-activedescendant"]); // what this file or the user has set

function sameAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !ours.has(name)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !ours.has(name)) old.removeAttribute(name);
}

// become makes old like fresh and returns the element that is in the document. Slots keep what is in them, unless whole.
function become(old, fresh, whole) {
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return old;
  }
  if (old.nodeName === "TIME") {
    if (old.dateTime !== fresh.dateTime) {
      old.dateTime = fresh.dateTime;
      old.title = fresh.textContent;
      showTime(old, Date.now());
    }
    return old;
  }
  sameAttributes(old, fresh);
  if (old.dataset.keep !== undefined) return old;
  if (old.dataset.slot !== undefined) {
    if (whole) fill(old, fresh);
    return old;
  }
  // The form shows what the URL says, but not while one types.
  if (old.type === "radio") old.checked = fresh.checked;
  else if (old.nodeName === "OPTION") old.selected = fresh.hasAttribute("selected");
  else if (whole && old.nodeName === "INPUT" && old !== document.activeElement) old.value = fresh.value;
  const [was, is] = [[...old.childNodes], [...fresh.childNodes]];
  for (let i = 0; i < is.length; i++) i < was.length ? become(was[i], is[i], whole) : old.append(is[i]);
  for (const node of was.slice(is.length)) node.remove();
  return old;
}

// fill gives a slot the children of fresh, which are known by their ids.
function fill(slot, fresh) {
  const wanted = new Set(Array.from(fresh.children, el => el.id));
  for (const el of [...slot.children]) if (!wanted.has(el.id)) el.remove();
  let after = null;
  for (const el of [...fresh.children]) {
    const old = byID(el.id);
    after = place(slot, after, old ? become(old, el, true) : el);
  }
}

// place puts el into slot behind after, or first.
function place(slot, after, el) {
  const next = after ? after.nextElementSibling : slot.firstElementChild;
  if (el !== next) slot.insertBefore(el, next);
  return el;
}

// keepFocus runs change. An element that had to move gets its focus back.
function keepFocus(change) {
  const id = document.activeElement?.closest("[id]")?.id;
  const link = document.activeElement?.matches("a");
  change();
  const el = id && byID(id);
  if (el && !el.contains(document.activeElement)) (link && el.querySelector("a.path") || el).focus({ preventScroll: true });
  showTimes();
  showSelected();
  showSource();
}

const parser = document.createElement("template");

// apply applies a patch; false if it does not fit what is shown.
function apply(patch) {
  let fits = true;
  keepFocus(() => {
    for (const id of patch.remove || []) byID(id)?.remove();
    for (const f of patch.set || []) {
      const slot = byID(f.in), after = f.after ? byID(f.after) : null;
      if (!slot || f.after && after?.parentElement !== slot) {
        fits = false;
        return;
      }
      parser.innerHTML = f.html; // escaped by the server; a template runs nothing
      const old = byID(f.id), fresh = parser.content.firstElementChild;
      place(slot, after, old ? become(old, fresh, false) : fresh);
    }
  });
  if (patch.title) document.title = patch.title;
  version = body.dataset.version = patch.v;
  return fits;
}

// ---- The whole page again: after a filter, after the stream was lost, and when the server says so. ----

let fetching = null;

async function refresh() {
  fetching?.abort();
  const mine = fetching = new AbortController(), url = here;
  source?.close();
  try {
    const answer = await fetch(url, { signal: mine.signal, headers: { Accept: "text/html" } });
    if (!answer.ok && answer.status !== 404) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (mine.signal.aborted) return;
    if (!fresh.body.dataset.view) throw new Error("this is not the page");
    document.title = fresh.title;
    version = body.dataset.version = fresh.body.dataset.version;
    keepFocus(() => {
      for (const slot of ["source-slot", "main"]) fill(byID(slot), fresh.getElementById(slot));
    });
    connect();
  } catch (err) {
    if (!mine.signal.aborted) gone();
  }
}

// go shows another URL of the same page.
function go(url, add) {
  if (url === here) return;
  here = url;
  history[add ? "pushState" : "replaceState"](null, "", url);
  refresh();
}

addEventListener("popstate", () => {
  if (here === location.pathname + location.search) return; // to another place of this page
  here = location.pathname + location.search;
  refresh();
});

// ---- The stream. ----

const silence = 40_000; // without a word for so long, the stream is lost
const patience = 5000;  // without a first word for so long too
let source = null, watchdog = 0, retry = 0, pause = 500, heardAt = Date.now(), alarmAt = 0;

function connect() {
  source?.close();
  clearTimeout(retry);
  const mine = source = new EventSource("/stream?u=" + encodeURIComponent(here) + "&v=" + version);
  const on = (name, then) => mine.addEventListener(name, e => {
    if (mine !== source) return;
    heard();
    then?.(e);
  });
  on("open");
  on("alive", resetPause);
  on("patch", e => apply(JSON.parse(e.data)) ? resetPause() : again());
  on("reload", again);
  mine.onerror = () => mine === source && gone();
  clearTimeout(watchdog);
  watchdog = setTimeout(gone, patience);
}

// again shows the page anew after a pause, which grows until the stream is as it should be.
function again() {
  source?.close();
  clearTimeout(retry);
  retry = setTimeout(refresh, pause * (0.75 + Math.random() / 2));
  pause = Math.min(pause * 2, 10_000);
}

function resetPause() {
  pause = 500;
}

function heard() {
  heardAt = Date.now();
  clearTimeout(watchdog);
  clearTimeout(alarmAt);
  watchdog = setTimeout(gone, silence);
  if (body.dataset.live === "true") return;
  body.dataset.live = "true";
  say("live");
  showSource();
}

// gone says that the stream is lost, and tries again. A moment is nothing to tell of.
function gone() {
  again();
  source = null;
  clearTimeout(watchdog);
  if (body.dataset.live !== "false") {
    body.dataset.live = "false";
    say("reconnecting…");
    clearTimeout(alarmAt);
    alarmAt = setTimeout(showSource, 1500);
  }
}

// A page that nobody sees needs no stream: browsers have six connections for a server.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    if (!source) connect();
  } else if (body.dataset.live === "true") {
    source?.close();
    source = null;
    clearTimeout(watchdog);
    clearTimeout(retry);
  }
});

function say(text) {
  const el = byID("stream");
  el.classList.toggle("gone", text !== "live");
  if (el.textContent !== text) el.textContent = text;
}

// showSource raises the alarm if muster serve or ZooKeeper does not answer.
function showSource() {
  const alarm = byID("alarm"), away = document.querySelector("[data-disconnected] time");
  const clock = ms => new Date(ms).toISOString().slice(11, 19) + " UTC";
  let text = "";
  if (body.dataset.live === "false" && Date.now() - heardAt > 1000) {
    text = "muster serve does not answer. What is shown was so at " + clock(heardAt) + ". Trying again.";
  } else if (document.querySelector("[data-disconnected]")) {
    text = "ZooKeeper does not answer. What is shown was so" + (away ? " at " + clock(Date.parse(away.dateTime)) : " before") + ".";
  }
  if (alarm.textContent !== text) alarm.textContent = text;
  alarm.hidden = !text;
}

// ---- The filter: as one types. ----

let typing = 0;

function filter(form) {
  const q = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value.trim()) q.set(name, value.trim());
  q.sort();
  const s = q.toString();
  go(new URL(form.action).pathname + (s && "?" + s), false);
}

addEventListener("input", e => {
  if (e.target.form?.id !== "filter") return;
  clearTimeout(typing);
  const form = e.target.form;
  if (e.target.type === "search") typing = setTimeout(() => filter(form), 150);
  else filter(form); // before a patch sets what was chosen
});
addEventListener("submit", e => {
  e.preventDefault();
  clearTimeout(typing);
  filter(e.target);
});

// ---- The grid of workers. ----

let selected = ""; // id of a cell

function select(cell) {
  byID(selected)?.removeAttribute("aria-selected");
  selected = cell?.id || "";
  const grid = byID("cells");
  if (!grid) return;
  if (cell) {
    cell.setAttribute("aria-selected", "true");
    grid.setAttribute("aria-activedescendant", selected);
    cell.scrollIntoView({ block: "nearest" });
  } else {
    grid.removeAttribute("aria-activedescendant");
  }
  showSelected();
}

// showSelected writes what is known of the worker of the selected cell.
function showSelected() {
  const box = byID("selected"), cell = selected && byID(selected);
  if (!box) return;
  if (!cell) {
    if (selected || box.querySelector("dl")) {
      selected = "";
      box.replaceChildren(text("p", "No worker is selected.", "dim"));
    }
    return;
  }
  const { identity, address, place, since, restarts, exit } = cell.dataset;
  const key = JSON.stringify([selected, cell.className, identity, address, place, since, restarts, exit]);
  if (box.dataset.shown === key && box.querySelector("dl")) return;
  box.dataset.shown = key;
  const state = cell.classList[1];
  const list = document.createElement("dl");
  const add = (name, value) => {
    if (!value) return;
    const pair = document.createElement("div"), dd = document.createElement("dd");
    dd.append(value);
    pair.append(text("dt", name), dd);
    list.append(pair);
  };
  add("worker", text("b", cell.id.slice(2)));
  add("state", state === "absent" ? "not joined" : text("span", state, "badge w-" + state));
  add("identity", identity && text("bdi", identity));
  add("address", address && text("bdi", address));
  add("place", place && text("bdi", place));
  if (since) {
    const time = document.createElement("time");
    time.dateTime = since;
    time.textContent = since.replace("T", " ");
    add("since", time);
  }
  add("restarts", restarts);
  add("last exit", exit && text("bdi", exit));
  box.replaceChildren(list);
  showTimes();
}

function text(name, content, className = "") {
  const el = document.createElement(name);
  el.textContent = content;
  if (className) el.className = className;
  return el;
}

function gridKey(e, grid) {
  const cells = grid.children, columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const now = selected ? Number(selected.slice(2)) : -1;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: columns * 10, PageUp: -columns * 10 };
  let to;
  if (e.key in step) to = now < 0 ? 0 : now + step[e.key];
  else if (e.key === "Home") to = 0;
  else if (e.key === "End") to = cells.length - 1;
  else if (e.key === "Escape") to = null;
  else return false;
  e.preventDefault();
  if (to === null) select(null);
  else if (to >= 0 && to < cells.length) select(cells[to]);
  return true;
}

// ---- Clicks and keys. ----

addEventListener("click", async e => {
  const cell = e.target.closest(".grid .cell");
  if (cell) return select(cell);
  const copy = e.target.closest(".copy");
  if (copy) {
    const code = copy.closest(".step").querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // not allowed: then one can press Ctrl-C
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    return;
  }
  const a = e.target.closest("a[href]");
  if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey || a.target) return;
  if (a.hash && a.pathname + a.search === here) return; // the browser finds the place, and opens what hides it
  if (a.origin === location.origin && a.pathname === location.pathname && a.closest("main")) {
    e.preventDefault();
    go(a.pathname + a.search, true);
    byID(a.hash.slice(1))?.scrollIntoView();
  }
});

const keys = byID("keys");
try {
  keys.checked = localStorage.getItem("keys") !== "off";
} catch { // the browser keeps nothing for this site
  keys.checked = true;
}
keys.addEventListener("change", () => {
  try {
    localStorage.setItem("keys", keys.checked ? "on" : "off");
  } catch { /* it holds until the page is left */ }
});

// move focuses the link of the next or the previous row.
function move(by) {
  const rows = [...document.querySelectorAll("[data-row] a.path")];
  if (!rows.length) return false;
  const now = rows.indexOf(document.activeElement);
  let to = now + by;
  if (now < 0) to = Math.max(0, rows.findIndex(a => a.getBoundingClientRect().top > 60));
  rows[Math.min(rows.length - 1, Math.max(0, to))].focus();
  return true;
}

addEventListener("keydown", e => {
  const at = e.target;
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (at.id === "cells" && gridKey(e, at)) return;
  if (at.matches?.("input[type=search]")) {
    if (e.key === "Escape" && !at.value) at.blur();
    return;
  }
  if (!keys.checked || at.matches?.("select, input, textarea")) return;
  const onRow = at.matches?.("[data-row] a.path");
  const done = {
    "/": () => { const q = byID("q"); q?.focus(); q?.select(); return q; },
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => onRow && move(1),
    ArrowUp: () => onRow && move(-1),
    u: () => { location.href = "/"; return true; },
  }[e.key]?.();
  if (done) e.preventDefault();
});

showTimes();
setInterval(showTimes, 1000);
showSource();
connect();
})();
