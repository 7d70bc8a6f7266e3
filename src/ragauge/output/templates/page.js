"use strict";
(() => {
  // Every text from data goes through `textContent`: nothing of it is ever read as HTML.
  const make = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    for (const child of children) node.append(child);
    return node;
  };
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  };
  const root = document.documentElement;
  window.ragauge = { make, read, unpack, root }; // for the script of a kind of page, where it has one

  // --- colour scheme: automatic, light, dark ---
  const schemes = { auto: "light", light: "dark", dark: "auto" };
  const names = { auto: "automatic", light: "light", dark: "dark" };
  const button = document.getElementById("scheme");
  button.addEventListener("click", () => {
    root.dataset.scheme = schemes[root.dataset.scheme];
    button.setAttribute("aria-label", `Colour scheme: ${names[root.dataset.scheme]}`);
    button.textContent = { auto: "◐", light: "○", dark: "●" }[root.dataset.scheme];
  });

  // --- charts ---
  const draw = async () => {
    const specs = read("charts");
    for (const place of document.querySelectorAll("[data-chart]")) {
      const spec = specs[place.dataset.chart];
      if (!spec) continue;
      try {
        await vegaEmbed(place, spec, { renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true } });
      } catch (error) {
        place.textContent = `This chart could not be drawn: ${error.message}`;
      }
      await new Promise((done) => setTimeout(done)); // the page stays usable while charts are drawn
    }
    root.dataset.charts = "drawn";
    document.getElementById(location.hash.slice(1).split("?")[0])?.scrollIntoView(); // charts may have moved it
  };

  // --- tables that are in the page already ---
  for (const heading of document.querySelectorAll("button[data-column]")) {
    heading.addEventListener("click", () => {
      const column = Number(heading.dataset.column);
      const cell = heading.parentElement;
      const body = heading.closest("table").tBodies[0];
      const up = cell.getAttribute("aria-sort") === "descending";
      for (const other of cell.parentElement.children) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const place = row.cells[column];
        return place.dataset.order === undefined ? place.textContent : Number(place.dataset.order);
      };
      const compare = (a, b) => {
        const [one, other] = [key(a), key(b)];
        const order = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
        return up ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  }

  // --- queries ---
  const PAGE = 50;
  const browse = async () => {
    const table = document.getElementById("q-table");
    if (!table) return;
    const about = read("about");
    const data = await unpack("values");
    let rankings = null;
    const at = (id) => document.getElementById(id);
    const [search, measureBox, systemBox, baseBox, showBox, tagBox] = ["q-search", "q-measure", "q-system", "q-base", "q-show", "q-tag"].map(at);
    const alone = about.systems.length === 1;
    table.classList.toggle("alone", alone);
    at("q-base-label").hidden = alone;
    const option = (box, value, text) => box.append(Object.assign(make("option", ""), { value, textContent: text }));
    about.measures.forEach((name, i) => option(measureBox, i, name));
    about.systems.forEach((name, i) => { option(systemBox, i, name); option(baseBox, i, name); });
    const kinds = [["all", `all ${about.asked}`], ["better", "better ones"], ["worse", "worse ones"], ["same", "those that are the same"], ["zero", "those that score 0"], ["failed", "those that failed"]];
    for (const [value, text] of kinds) if (!alone || !["better", "worse", "same"].includes(value)) option(showBox, value, text);
    option(tagBox, "", "any kind");
    data.tags.forEach((one, tag) => one.names.forEach((name, i) => option(tagBox, `${tag} ${i}`, `${one.tag}: ${name}`)));
    if (tagBox.options.length === 1) at("q-tag-label").hidden = true;
    systemBox.value = about.system;
    baseBox.value = about.base;
    const haystack = data.ids.map((id, i) => `${id}\n${data.texts[i] || ""}`.toLowerCase());
    let sort = { key: "moved", up: false };
    let page = 0;
    let rows = [];
    const chosen = () => ({ m: Number(measureBox.value), s: Number(systemBox.value), b: Number(baseBox.value) });
    const number = (value) => (value === null ? "–" : value.toFixed(4));
    const signed = (value) => (value === null ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(4));

    const filter = () => {
      const { m, s, b } = chosen();
      const mine = data.values[m][s], base = data.values[m][b];
      const lower = about.lower[m];
      const change = (i) => (mine[i] === null || base[i] === null ? null : mine[i] - base[i]);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const [tag, value] = tagBox.value ? tagBox.value.split(" ").map(Number) : [null, null];
      const failed = data.failed[s] || {};
      rows = [];
      for (let i = 0; i < data.ids.length; i++) {
        if (tag !== null && data.tags[tag].of[i] !== value) continue;
        const moved = change(i);
        const gain = moved === null ? null : lower ? -moved : moved;
        const kept = { all: true, better: gain > 0, worse: gain !== null && gain < 0, same: gain === 0, zero: mine[i] === 0, failed: i in failed }[showBox.value];
        if (kept && words.every((word) => haystack[i].includes(word))) rows.push({ i, base: base[i], system: mine[i], moved });
      }
      const keys = { query: (row) => row.i, base: (row) => row.base, system: (row) => row.system, moved: (row) => (sort.sized && row.moved !== null ? Math.abs(row.moved) : row.moved) };
      const key = keys[sort.key];
      const none = sort.up ? Infinity : -Infinity;
      rows.sort((a, b) => { const x = key(a) ?? none, y = key(b) ?? none; return (sort.up ? x - y : y - x) || a.i - b.i; });
      page = 0;
      show();
    };

    const show = () => {
      const { s, b } = chosen();
      at("q-th-system").textContent = about.systems[s];
      at("q-th-base").textContent = about.systems[b];
      const pages = Math.max(1, Math.ceil(rows.length / PAGE));
      page = Math.min(Math.max(0, page), pages - 1);
      const body = make("tbody", "");
      for (const row of rows.slice(page * PAGE, (page + 1) * PAGE)) body.append(line(row));
      table.tBodies[0].replaceWith(body);
      const wins = rows.filter((row) => row.moved !== null && (about.lower[chosen().m] ? row.moved < 0 : row.moved > 0)).length;
      const ties = rows.filter((row) => row.moved === 0).length;
      const none = rows.filter((row) => row.moved === null).length;
      const many = (count) => count.toLocaleString("en");
      const counted = `${many(rows.length)} of ${many(data.ids.length)} ${about.asked}`;
      at("q-count").textContent = alone || s === b ? counted : `${counted}: ${many(wins)} better, ${many(rows.length - wins - ties - none)} worse, ${many(ties)} the same`;
      at("q-page").textContent = `page ${page + 1} of ${pages}`;
      at("q-before").disabled = page === 0;
      at("q-after").disabled = page >= pages - 1;
    };

    const line = (row) => {
      const lower = about.lower[chosen().m];
      const toggle = make("button", "open");
      toggle.type = "button";
      toggle.setAttribute("aria-expanded", "false");
      const text = data.texts[row.i];
      toggle.append(text || data.ids[row.i]);
      if (text) toggle.append(" ", make("span", "id", data.ids[row.i]));
      const head = make("th", "", toggle);
      head.scope = "row";
      const good = row.moved === null || row.moved === 0 ? "" : (row.moved > 0) !== lower ? " up" : " down";
      const tr = make("tr", "", head, make("td", "n", number(row.base)), make("td", "n", number(row.system)), make("td", `n${good}`, signed(row.moved)));
      toggle.addEventListener("click", async () => {
        const open = toggle.getAttribute("aria-expanded") === "true";
        toggle.setAttribute("aria-expanded", String(!open));
        if (open) { tr.nextElementSibling.remove(); return; }
        const cell = make("td", "", "…");
        cell.colSpan = 4;
        tr.after(make("tr", "detail", cell));
        cell.replaceChildren(...(await detail(row.i)));
      });
      toggle.dataset.query = row.i;
      return tr;
    };

    const detail = async (i) => {
      const { m, s, b } = chosen();
      const values = make("p", "values", `${about.measures[m]}: `);
      about.systems.forEach((name, one) => values.append(one ? ", " : "", `${name} `, make("b", "", number(data.values[m][one][i]))));
      const parts = [values];
      for (const [one, errors] of Object.entries(data.failed)) if (i in errors) parts.push(make("p", "values down", `${about.systems[one]} failed: ${errors[i]}`));
      if (!document.getElementById("rankings")) return parts;
      rankings ??= await unpack("rankings");
      const place = rankings.places[i];
      if (place === undefined || place === null) return [...parts, make("p", "values", about.unkept)];
      const grades = new Map();
      for (let j = rankings.judged.starts[place]; j < rankings.judged.starts[place + 1]; j++) grades.set(rankings.judged.docs[j], rankings.judged.grades[j]);
      const list = (system) => {
        const { starts, docs, scores } = rankings.lists[system];
        const found = [];
        for (let j = starts[place]; j < starts[place + 1]; j++) found.push({ doc: docs[j], score: scores[j], rank: j - starts[place] + 1 });
        return found;
      };
      const shown = (hit, others, name) => {
        const grade = grades.get(hit.doc);
        const judged = grade !== undefined;
        const relevant = judged && grade >= rankings.rel;
        const [title, text] = rankings.texts[hit.doc] || ["", ""];
        const id = rankings.docs[hit.doc];
        const named = title && title !== id && !title.startsWith(id);
        const main = make("div", "", make("span", "title", title || id), text || named ? make("span", "text", named ? `${id} · ${text}` : text) : "");
        const facts = make("div", "facts", make("span", "grade", judged ? `grade ${grade}` : "unjudged"));
        if (hit.score !== undefined && hit.score !== null) facts.append(String(hit.score));
        if (others) {
          const there = others.find((other) => other.doc === hit.doc);
          facts.append(make("span", "elsewhere", there ? `${name}: ${there.rank}` : `not in ${name}`));
        }
        const item = make("li", `hit${judged ? " judged" : ""}${relevant ? " relevant" : ""}`, make("span", "rank", hit.rank ? String(hit.rank) : ""), main, facts);
        item.dataset.doc = hit.doc;
        return item;
      };
      const [left, right] = [list(b), list(s)];
      const column = (system, hits, other, others) => {
        const items = hits.map((hit) => shown(hit, b === s ? null : others, about.systems[other]));
        return make("div", "", make("h4", "", about.systems[system]), items.length ? make("ol", "", ...items) : make("p", "values", "nothing was returned"));
      };
      const both = b === s ? [column(s, right, b, left)] : [column(b, left, s, right), column(s, right, b, left)];
      const lists = make("div", "lists", ...both);
      const light = (event) => {
        const doc = event.target.closest("[data-doc]")?.dataset.doc;
        for (const item of lists.querySelectorAll("[data-doc]")) item.classList.toggle("same", doc !== undefined && item.dataset.doc === doc);
      };
      lists.addEventListener("mouseover", light);
      lists.addEventListener("mouseleave", light);
      parts.push(lists);
      const seen = new Set([...left, ...right].map((hit) => hit.doc));
      const missing = [...grades].filter(([doc, grade]) => grade >= rankings.rel && !seen.has(doc)).sort((x, y) => y[1] - x[1]);
      if (missing.length) {
        const items = missing.slice(0, 10).map(([doc]) => shown({ doc }, null, ""));
        const more = missing.length > 10 ? ` (10 of ${missing.length})` : "";
        parts.push(make("div", "missing", make("h4", "", `Relevant, and not in ${b === s ? "its" : "either"} first ${rankings.depth}${more}`), make("ol", "", ...items)));
      }
      return parts;
    };

    // What is chosen stands in the address, so that a view can be sent to somebody: #queries?show=worse&open=q7
    const boxes = { measure: measureBox, system: systemBox, against: baseBox, show: showBox, kind: tagBox, search };
    const texts = (box) => (box.tagName === "SELECT" ? [...box.options] : []);
    const remember = () => {
      const chosen = new URLSearchParams();
      for (const [name, box] of Object.entries(boxes)) {
        const value = box.tagName === "SELECT" ? box.selectedOptions[0]?.textContent : box.value;
        if (box.value !== usual[name]) chosen.set(name, name === "show" ? box.value : value);
      }
      const open = table.querySelector('.open[aria-expanded="true"]');
      if (open) chosen.set("open", data.ids[open.dataset.query]);
      const address = `#queries${chosen.size ? `?${chosen}` : ""}`;
      if (location.hash !== address && (chosen.size || location.hash.startsWith("#queries"))) history.replaceState(null, "", address);
    };
    const recall = () => {
      const [section, query] = location.hash.slice(1).split(/\?(.*)/s);
      if (section !== "queries" || !query) return;
      const chosen = new URLSearchParams(query);
      for (const [name, box] of Object.entries(boxes)) {
        const value = chosen.get(name);
        const option = texts(box).find((one) => one.value === value || one.textContent === value);
        box.value = value === null ? usual[name] : box.tagName === "SELECT" ? (option ? option.value : usual[name]) : value;
      }
      filter();
      document.getElementById("queries").scrollIntoView();
      const wanted = data.ids.indexOf(chosen.get("open"));
      const row = rows.findIndex((one) => one.i === wanted);
      if (row < 0) return;
      page = Math.floor(row / PAGE);
      show();
      table.querySelector(`.open[data-query="${wanted}"]`).click();
    };
    const usual = Object.fromEntries(Object.entries(boxes).map(([name, box]) => [name, box.value]));
    const again = () => { filter(); remember(); };
    for (const box of [measureBox, systemBox, baseBox, showBox, tagBox]) box.addEventListener("change", again);
    table.addEventListener("click", () => setTimeout(remember));
    addEventListener("hashchange", recall);
    let typing;
    search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(again, 60); });
    search.form.addEventListener("submit", (event) => event.preventDefault());
    at("q-before").addEventListener("click", () => { page--; show(); });
    at("q-after").addEventListener("click", () => { page++; show(); });
    for (const heading of table.querySelectorAll("[data-sort]")) heading.addEventListener("click", () => {
      const key = heading.dataset.sort;
      sort = { key, up: sort.key === key ? !sort.up : key === "query", sized: false };
      for (const cell of table.tHead.rows[0].cells) cell.setAttribute("aria-sort", "none");
      heading.parentElement.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
      filter();
    });
    table.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      const toggles = [...table.querySelectorAll(".open")];
      const next = toggles.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      if (toggles[next]) { event.preventDefault(); toggles[next].focus(); }
    });
    document.addEventListener("keydown", (event) => {
      const typed = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
      if (event.key === "/" && !typed && !event.ctrlKey && !event.metaKey) { event.preventDefault(); search.focus(); }
      if (document.activeElement !== search) return;
      if (event.key === "Escape") { search.value = ""; again(); }
      if (event.key === "ArrowDown") { event.preventDefault(); table.querySelector(".open")?.focus(); }
    });
    sort = alone ? { key: "system", up: !about.lower[0] } : { key: "moved", up: false, sized: true };
    table.querySelector(`[data-sort=${sort.key}]`).parentElement.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
    filter();
    recall();
    root.dataset.queries = "ready";
  };

  browse().catch((error) => {
    const count = document.getElementById("q-count");
    if (count) count.textContent = `The list of queries cannot be shown in this browser: ${error.message}`;
  }).then(draw);
})();
