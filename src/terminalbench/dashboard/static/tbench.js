"use strict";
// Everything works without this file, except live updates and keys. It never puts text of an agent into the page:
// new content is HTML the server made and escaped, parsed without running anything.
(() => {
  const body = document.body;

  // --- new content: fetch the page again, swap the parts that are live ------------------------------------------
  let offerCopies = () => {};
  let busy = false, next = null, missed = false, again = 0; // missed: a live part could not show what is new
  async function refresh(url, ids) {
    if (busy) { next = [url, ids || next?.[1]]; return; } // what was asked for last is what counts
    busy = true;
    try {
      const answer = await fetch(url, { credentials: "same-origin", headers: { "x-part": "1" } });
      if (!answer.ok) {
        clearTimeout(again);
        if (!ids && answer.status >= 500) again = setTimeout(() => refresh(location.href, null), 2000);
        return;
      }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const wanted = ids ? ids.map((id) => document.getElementById(id)) : [...document.querySelectorAll("[data-live]")];
      for (const old of wanted) {
        const made = old && fresh.getElementById(old.id);
        if (made) for (const open of old.querySelectorAll("details[id]")) made.querySelector("#" + CSS.escape(open.id))?.toggleAttribute("open", open.open);
        if (!made || made.innerHTML === old.innerHTML) continue;
        if (old.contains(document.activeElement) && !ids) { missed = true; continue; } // a reader keeps the focus
        old.replaceWith(document.importNode(made, true));
      }
      if (!ids) for (const old of document.querySelectorAll("[data-grow]")) grow(old, fresh.getElementById(old.id));
      offerCopies();
    } catch (error) {
      pulse("offline", false); // the server is gone for now; the stream says when it is back
    } finally {
      busy = false;
      if (next) { const asked = next; next = null; setTimeout(() => refresh(...asked), 300); }
    }
  }

  // what is there stays as its reader left it; its last part may have changed, and more may follow
  function grow(old, made) {
    if (!made) return;
    const known = [...old.children], more = [...made.children];
    more.forEach((part, place) => {
      const here = known[place];
      if (!here) old.append(document.importNode(part, true));
      else if (place === known.length - 1 && here.textContent !== part.textContent && !here.contains(document.activeElement)) {
        const fresh = document.importNode(part, true), open = here.querySelectorAll("details");
        fresh.querySelectorAll("details").forEach((one, at) => { if (open[at]) one.open = open[at].open; });
        here.replaceWith(fresh);
      }
    });
  }

  addEventListener("focusout", () => {
    if (!missed) return;
    missed = false;
    setTimeout(() => refresh(location.href, null), 0); // when the focus has arrived elsewhere
  });

  // --- live ---------------------------------------------------------------------------------------------------------
  const spot = document.querySelector("[data-pulse]");
  function pulse(text, on) {
    if (!spot) return;
    spot.textContent = text;
    spot.classList.toggle("on", on);
  }
  if (body.dataset.feed && "EventSource" in window) {
    let seen = false, last = 0, timer = 0, polling = 0;
    const look = () => {
      clearTimeout(timer);
      timer = setTimeout(() => { last = Date.now(); refresh(location.href, null); }, Math.max(0, 1000 - (Date.now() - last)));
    };
    const stream = new EventSource(body.dataset.feed);
    stream.addEventListener("hello", () => { pulse("up to date", true); if (seen) look(); seen = true; });
    stream.addEventListener("change", look);
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) { pulse("waiting for the server", false); return; }
      pulse("looking every 10 s", false); // refused: too many pages are open
      if (!polling) polling = setInterval(look, 10000);
    };
    addEventListener("pagehide", () => stream.close());
    // times and the estimate move on while nothing happens
    setInterval(() => { if (document.querySelector("#live section, [data-runs]")) look(); }, 10000);
  }

  // --- filters ------------------------------------------------------------------------------------------------------
  for (const form of document.querySelectorAll("form[data-filters]")) {
    const button = form.querySelector("button");
    if (button) button.hidden = true;
    let timer = 0;
    const apply = () => {
      const words = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
      const url = new URL(location.href);
      url.search = words.toString();
      history.replaceState(null, "", url);
      for (const link of document.querySelectorAll(".foot .downloads a")) {
        const target = new URL(link.href);
        target.search = url.search;
        link.href = target;
      }
      refresh(url, [form.dataset.filters]);
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 200); });
    form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  }

  // an exported site has no server: the rows that are there are searched here
  for (const form of document.querySelectorAll("[data-local]")) {
    const rows = [...document.querySelectorAll("#" + form.dataset.local + " tr[data-row]")];
    if (rows.length < 2) continue;
    form.hidden = false;
    const texts = rows.map((row) => row.textContent.toLowerCase());
    form.querySelector("input").addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      let fit = 0;
      rows.forEach((row, place) => { row.hidden = !words.every((word) => texts[place].includes(word)); if (!row.hidden) fit += 1; });
      form.querySelector("[role=status]").textContent = words.length ? fit + " of " + rows.length : "";
    });
  }

  for (const form of document.querySelectorAll("[data-local-steps]")) {
    const steps = [...document.querySelectorAll("[data-steps] .step")];
    form.hidden = steps.length < 2;
    form.addEventListener("input", () => {
      const text = form.querySelector("input").value.toLowerCase(), only = form.querySelector("select").value;
      for (const step of steps) {
        step.hidden = !step.textContent.toLowerCase().includes(text) || (only && !step.dataset.marks.split(" ").includes(only));
        if (!step.hidden && (text || only)) step.closest(".repeated")?.setAttribute("open", "");
      }
      form.querySelector("[role=status]").textContent = text || only ? steps.filter((step) => !step.hidden).length + " of " + steps.length : "";
    });
  }

  // --- steps and keys -----------------------------------------------------------------------------------------------
  const steps = document.querySelector("[data-steps]");
  function reveal(step) { // open, and whatever it lies in
    const own = step.querySelector("details");
    for (let one = own; one; one = one.parentElement.closest("details")) one.open = true;
  }
  function toStep() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (!name) return;
    const found = document.getElementById(name);
    if (found) { if (found.classList.contains("step")) { reveal(found); found.focus({ preventScroll: false }); } return; }
    if (!steps || !steps.dataset.pages) return;
    const { size, pages, page, first, second } = steps.dataset, place = /^step-(?:at-)?(\d+)$/.exec(name), to = place && Math.ceil(place[1] / size);
    if (to && to <= pages && to !== Number(page)) location.replace((to === 1 ? first : second.replace(/2\/(?=[^/]*$)/, `${to}/`)) + "#" + name);
  }
  addEventListener("hashchange", toStep);
  toStep();
  for (const form of document.querySelectorAll("form[data-jump]")) form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = "step-" + form.elements.step.value;
    if (location.hash === "#" + name) toStep();
    location.hash = name;
  });

  // --- replay: the steps as they came, by their own times ----------------------------------------------------------
  const player = document.querySelector("[data-replay]"), timed = [...document.querySelectorAll("#steps .step[data-since]")];
  const length = Math.max(0, ...timed.map((step) => Number(step.dataset.since)));
  if (player && timed.length > 1 && length >= 1 && !document.querySelector("[data-runs]")) {
    const [button, speed, slider, told] = ["button", "select", "input", "[role=status]"].map((one) => player.querySelector(one));
    player.hidden = false;
    slider.max = length; slider.value = length;
    let opened = null, timer = 0;
    const clock = (sec) => Math.floor(sec / 60) + ":" + String(Math.floor(sec % 60)).padStart(2, "0");
    function show(at) {
      slider.value = at;
      let last = null;
      for (const step of timed) { step.hidden = Number(step.dataset.since) > at; if (!step.hidden) last = step; }
      for (const step of timed) step.classList.toggle("now", step === last && at < length);
      told.textContent = clock(at) + " of " + clock(length);
      const details = last?.querySelector("details");
      if (timer && details && details !== opened) {
        if (opened) opened.open = false;
        opened = details.open ? null : details;
        reveal(last);
        last.scrollIntoView({ block: "nearest" });
      }
    }
    function stop() { clearInterval(timer); timer = 0; button.textContent = "Play"; }
    button.addEventListener("click", () => {
      if (timer) { stop(); return; }
      let at = Number(slider.value) >= length ? 0 : Number(slider.value), then = performance.now();
      button.textContent = "Pause";
      timer = setInterval(() => {
        const now = performance.now();
        at = Math.min(length, at + (now - then) / 1000 * Number(speed.value));
        then = now;
        show(at);
        if (at >= length) stop();
      }, 100);
      show(at);
    });
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  }

  // --- copy ---------------------------------------------------------------------------------------------------------
  if (navigator.clipboard) {
    const offer = (place, text) => {
      if (place.querySelector(":scope > .copy")) return;
      const button = document.createElement("button");
      button.type = "button"; button.className = "copy"; button.textContent = "Copy";
      button.addEventListener("click", async () => { await navigator.clipboard.writeText(text()); button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); });
      place.append(button);
    };
    const fill = (step) => { for (const block of step.querySelectorAll(":scope > details > .block:not(.thinking)")) offer(block, () => [...block.querySelectorAll("pre")].map((pre) => pre.textContent).join("\n")); };
    offerCopies = () => {
      document.querySelectorAll(".step > details[open]").forEach((details) => fill(details.parentElement));
      for (const code of document.querySelectorAll(".now code")) offer(code.parentElement, () => code.textContent);
    };
    offerCopies();
    addEventListener("toggle", (event) => { if (event.target.open && event.target.parentElement?.classList.contains("step")) fill(event.target.parentElement); }, true);
  }

  function move(by) {
    const list = [...document.querySelectorAll("[data-steps] .step")].filter((step) => step.checkVisibility?.() ?? true);
    const rows = list.length ? list : [...document.querySelectorAll("tr[data-row]")];
    if (!rows.length) return;
    const old = list.length ? rows.indexOf(document.activeElement.closest?.(".step")) : rows.findIndex((row) => row.classList.contains("chosen"));
    const next = Math.min(rows.length - 1, Math.max(0, old + by));
    if (list.length) {
      rows[next].focus();
      rows[next].scrollIntoView({ block: "start" });
      history.replaceState(null, "", "#" + rows[next].id);
    } else {
      rows.forEach((row, position) => row.classList.toggle("chosen", position === next));
      rows[next].scrollIntoView({ block: "nearest" });
    }
  }
  const follow = (selector) => { const link = document.querySelector(selector); if (link) location.href = link.href; };
  const keys = document.getElementById("keys");
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    if (event.target.closest?.("input, select, textarea")) return;
    switch (event.key) {
      case "j": move(1); break;
      case "k": move(-1); break;
      case "ArrowLeft": if (!event.target.closest?.(".scroll")) follow("[data-previous]"); return;
      case "ArrowRight": if (!event.target.closest?.(".scroll")) follow("[data-next]"); return;
      case "Enter": if (event.target.classList?.contains("step")) { const own = event.target.querySelector("details"); own.open = !own.open; } else if (event.target === body || event.target.id === "main") follow("tr.chosen a"); return;
      case "h": follow(".brand"); break;
      case "/": document.querySelector("input[type=search]")?.focus(); break;
      case "?": keys.showModal(); break;
      default: return;
    }
    event.preventDefault();
  });
})();
