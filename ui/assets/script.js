// The script keeps a page up to date while somebody looks at it, and adds keys. All pages work without it.
"use strict";

const every = 2000; // ms between two looks, at least
const rest = 50, most = 300000; // after a look that took the server t ms, rest * t ms without one, at most so many
const trusted = globalThis.trustedTypes?.createPolicy("ledgerd", { createHTML: (text) => text });
const live = document.getElementById("live");
const keys = document.getElementById("keys");
let tag = ""; // ETag of the page that is shown
let row = -1; // index of the marked row
let first = ""; // "g" after the key g
let paused = false, looking = false;
let due = 0; // when the next look may begin

const writes = "input:not([type=checkbox]), textarea, select"; // fields for text

// busy reports whether the user writes, has selected text or reads the keys: then the page stays as it is.
function busy() {
  return document.activeElement?.matches(writes) || keys.open || !getSelection().isCollapsed;
}

// loses reports whether a newer page would lose a typed text or a ticked row. The next act would then not be the one that
// the user means.
const loses = (main) =>
  [...document.querySelectorAll("main form :is(input:not([type=checkbox]):not([type=hidden]), textarea)")]
    .some((e) => e.value !== e.defaultValue) ||
  ticked().some((box) => !main.querySelector(`.list input[name=id][value="${box.value}"]`));

// put shows a newer page. It keeps opened details, ticked rows, the marked row and the focus, each at its item, if the
// item is still there.
function put(main) {
  const old = document.getElementById("main");
  const opened = [...old.querySelectorAll("details")].map((d) => d.open);
  const reach = "a, button, summary, input[type=checkbox]";
  const ticks = new Set(ticked().map((box) => box.value));
  const focus = [...old.querySelectorAll(reach)].indexOf(document.activeElement);
  const word = (e) => [e?.textContent, e?.value, e?.href, e?.form?.action, e?.form?.elements.where?.value].join();
  const had = word(document.activeElement);
  const link = (r) => r?.querySelector("a")?.href;
  const at = link(rows()[row]);
  old.replaceWith(main);
  const now = [...main.querySelectorAll("details")];
  if (now.length === opened.length) now.forEach((d, i) => (d.open = opened[i]));
  const all = [...main.querySelectorAll(reach)];
  const again = word(all[focus]) === had ? all[focus] : all.find((e) => focus >= 0 && word(e) === had);
  for (const box of boxes()) box.checked = ticks.has(box.value);
  again?.focus({ preventScroll: true });
  if (link(rows()[row]) !== at) row = rows().findIndex((r) => link(r) === at);
  mark();
  left();
  choose();
}

// boxes are the checkboxes of rows.
const boxes = () => [...document.querySelectorAll(".list input[name=id]")];
const ticked = () => boxes().filter((box) => box.checked);

// choose shows how many rows are ticked.
function choose() {
  const which = document.getElementById("which");
  if (!which) return;
  const n = ticked().length, every = document.getElementById("every");
  which.dataset.none ??= which.textContent;
  which.textContent = n ? `${n} ticked:` : which.dataset.none;
  every.hidden = false;
  every.checked = n > 0 && n === boxes().length;
}

document.addEventListener("change", (e) => {
  if (e.target.id === "every") boxes().forEach((box) => (box.checked = e.target.checked));
  choose();
});

// left shows how long it is until a time. Without this script the page shows the time.
function left() {
  for (const t of document.querySelectorAll("time[data-left]")) {
    t.title ||= t.textContent;
    const s = Math.max(0, Math.round((new Date(t.dateTime) - Date.now()) / 1000));
    t.textContent = `${t.title} (${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")} left)`;
  }
}

// look asks for a newer page, and shows it unless the user would lose something. A page that was not shown is asked for
// again, because tag stays.
async function look() {
  if (looking || document.hidden || paused || Date.now() < due || busy() || document.querySelector("main form[action$='/login']")) return;
  looking = true;
  try {
    const answer = await fetch(location.href, { headers: { "Ledgerd-Look": "1", ...(tag && { "If-None-Match": tag }) } });
    if (answer.redirected) location.reload();
    const took = /dur=([\d.]+)/.exec(answer.headers.get("Server-Timing"))?.[1] ?? 0;
    due = Date.now() + Math.min(rest * took, most);
    let shown = answer.status < 500; // with 304 and 404 the page is up to date
    if (answer.status === 200) {
      const text = await answer.text();
      const page = new DOMParser().parseFromString(trusted ? trusted.createHTML(text) : text, "text/html");
      const main = page.getElementById("main");
      shown = main && !paused && !busy() && !loses(main);
      if (shown) {
        put(main);
        tag = answer.headers.get("ETag") ?? "";
      }
    }
    tell(shown ? "live" : "not up to date");
  } catch {
    tell("the server does not answer");
  } finally {
    looking = false;
  }
}

// tell shows whether the page is up to date. A screen reader speaks only a text that changes. An answer may come after
// the user has stopped updates.
function tell(text) {
  if (paused) text = "not updated";
  if (live.textContent !== text) live.textContent = text;
}

function pause() {
  paused = !paused;
  document.getElementById("pause").textContent = paused ? "Go on updating" : "Stop updates";
  tell("live");
  due = 0;
  look();
}

// off reports whether the user has turned the keys off, for dictation or for keys of a browser extension.
const off = () => localStorage.getItem("keys") === "off";

function turn() {
  localStorage.setItem("keys", off() ? "on" : "off");
  document.getElementById("turn").textContent = off() ? "Turn keys on" : "Turn keys off";
}

// rows are the rows that the keys j and k go through.
const rows = () => [...document.querySelectorAll(".list tbody tr, .cause")];

function mark() {
  rows().forEach((r, i) => r.classList.toggle("here", i === row));
}

function move(by) {
  const queue = [...document.querySelectorAll(".queue a")];
  if (queue.length) {
    queue[queue.findIndex((a) => a.ariaCurrent) + by]?.click();
    return;
  }
  row = Math.min(Math.max(row + by, 0), rows().length - 1);
  mark();
  rows()[row]?.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || off() || keys.open) return;
  if (e.target.matches(writes)) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const was = first;
  first = e.key === "g" ? "g" : "";
  if (was === "g") {
    document.querySelector(`nav a[data-key="${CSS.escape(e.key)}"]`)?.click();
  } else if (e.key === "/") {
    e.preventDefault();
    document.querySelector('input[data-key="/"]')?.focus();
  } else if (e.key === "?") {
    keys.showModal();
  } else if (e.key === "p") {
    pause();
  } else if (e.key === "j" || e.key === "k") {
    move(e.key === "j" ? 1 : -1);
  } else if (e.key === "o" && rows()[row]) {
    rows()[row].querySelector("a")?.click();
  } else {
    // A key presses a button of the marked row, if it has one. The buttons of the page, which act on all items of a
    // list, are pressed only if rows are ticked or no row is marked.
    const key = `[data-key="${CSS.escape(e.key)}"]`;
    const here = rows()[row];
    const page = e.key === "u" || ticked().length || !here ? document.getElementById("main") : null;
    const found = here?.querySelector(key) ?? page?.querySelector(`:is(button, a, textarea)${key}`);
    if (found?.matches("textarea")) {
      e.preventDefault();
      found.focus();
    } else found?.click();
  }
});

// A browser completes only a whole text. So each offered term is put behind the terms that are already typed.
document.addEventListener("input", (e) => {
  const list = e.target.list;
  if (!list) return;
  list.all ??= [...list.options].map((o) => [o.text, o.value]);
  const before = e.target.value.slice(0, e.target.value.lastIndexOf(" ") + 1);
  if (before !== list.before) list.replaceChildren(...list.all.map(([text, value]) => new Option(text, before + value)));
  list.before = before;
});

// A click copies the link to this view. If copying is not allowed, the link is followed.
document.addEventListener("click", async (e) => {
  const a = e.target.closest?.("a[data-copy]");
  if (!a || !navigator.clipboard) return;
  e.preventDefault();
  try {
    await navigator.clipboard.writeText(a.href);
    a.textContent = "Link copied";
  } catch {
    location = a.href;
  }
});

for (const [id, act] of [["pause", pause], ["help", () => keys.showModal()], ["turn", turn]]) {
  const button = document.getElementById(id);
  button.hidden = false;
  button.addEventListener("click", act);
}
if (off()) document.getElementById("turn").textContent = "Turn keys on";

left();
choose();
setInterval(left, 1000);
setInterval(look, every);
document.addEventListener("visibilitychange", look);
look();
