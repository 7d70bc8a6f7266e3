"use strict";
(() => {
  const { make, read, unpack, root } = window.ragauge;
  const PAGE = 50;
  const COLUMNS = 5; // more would leave no room for the question
  const MARKS = { supported: "✓", contradicted: "✗", absent: "○", unscored: "?", "not asked": "–" };
  const ASKED = { answer: "the answer", reference: "the reference" };
  const table = document.getElementById("s-table");
  const at = (id) => document.getElementById(id);
  const [search, measureBox, showBox] = ["s-search", "s-measure", "s-show"].map(at);
  const number = (value) => (value === null ? "–" : value.toFixed(4));
  const many = (count, one, several) => `${count.toLocaleString("en")} ${count === 1 ? one : several || `${one}s`}`;

  const browse = async () => {
    const about = read("about");
    const data = await unpack("values");
    let details = null;
    const option = (box, value, text) => box.append(Object.assign(make("option", ""), { value, textContent: text }));
    about.measures.forEach((name, i) => option(measureBox, i, about.lower[i] ? `${name}, highest first` : `${name}, lowest first`));
    option(measureBox, -1, "order of the file");
    const shows = { all: "all samples", unscored: "unscored ones", unread: "with something that has no verdict", unsupported: "with unsupported claims", contradicted: "with contradicted claims" };
    for (const [value, text] of Object.entries(shows)) option(showBox, value, text);
    const haystack = data.ids.map((id, i) => `${id}\n${data.questions[i]}\n${data.answers[i]}`.toLowerCase());
    let sort = { column: about.measures.length ? 0 : -1, up: about.measures.length ? !about.lower[0] : true };
    let page = 0;
    let rows = [];

    const missing = (i) => (sort.column < 0 ? data.values.some((column) => column[i] === null) : data.values[sort.column][i] === null);
    const kept = {
      all: () => true,
      unscored: missing,
      unread: (i) => data.unread[i] > 0,
      unsupported: (i) => data.contradicted[i] + data.absent[i] > 0,
      contradicted: (i) => data.contradicted[i] > 0,
    };
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows = [];
      for (let i = 0; i < data.ids.length; i++) if (kept[showBox.value](i) && words.every((word) => haystack[i].includes(word))) rows.push(i);
      const column = sort.column < 0 ? null : data.values[sort.column];
      if (column) {
        // What has no value stands behind all that has one, whichever way they are sorted.
        rows.sort((a, b) => (column[a] === null) - (column[b] === null) || (column[a] === null ? 0 : sort.up ? column[a] - column[b] : column[b] - column[a]) || a - b);
      } else if (!sort.up) rows.reverse();
      page = 0;
      show();
    };

    const columns = () => {
      const first = about.measures.map((_, m) => m).slice(0, COLUMNS);
      if (sort.column >= first.length) first[first.length - 1] = sort.column;
      return first;
    };

    const show = () => {
      const pages = Math.max(1, Math.ceil(rows.length / PAGE));
      page = Math.min(Math.max(0, page), pages - 1);
      const body = make("tbody", "");
      for (const i of rows.slice(page * PAGE, (page + 1) * PAGE)) body.append(line(i));
      table.tBodies[0].replaceWith(body);
      [...table.tHead.rows[0].cells].forEach((cell, place) => {
        if (cell.classList.contains("n")) cell.hidden = !columns().includes(place - 1);
        if (cell.hasAttribute("aria-sort")) cell.setAttribute("aria-sort", place - 1 === sort.column ? (sort.up ? "ascending" : "descending") : "none");
      });
      const lacking = rows.filter(missing).length;
      const what = sort.column < 0 ? "a measure" : about.measures[sort.column];
      at("s-count").textContent = `${rows.length.toLocaleString("en")} of ${many(data.ids.length, "sample")}${lacking ? `; ${lacking.toLocaleString("en")} without ${what}` : ""}`;
      at("s-page").textContent = `page ${page + 1} of ${pages}`;
      at("s-before").disabled = page === 0;
      at("s-after").disabled = page >= pages - 1;
    };

    const line = (i) => {
      const toggle = make("button", "open");
      toggle.type = "button";
      toggle.setAttribute("aria-expanded", "false");
      toggle.append(data.questions[i] || data.ids[i]);
      if (data.questions[i]) toggle.append(" ", make("span", "id", data.ids[i]));
      const head = make("th", "", toggle);
      head.scope = "row";
      const cells = columns().map((m) => {
        const column = data.values[m];
        const cell = make("td", column[i] === null ? "n none" : "n", column[i] === null ? "unscored" : number(column[i]));
        cell.dataset.name = about.measures[m];
        if (column[i] === null) cell.title = data.why[m][i] || "";
        return cell;
      });
      const marks = [[data.contradicted[i], "✗", "contradicted"], [data.absent[i], "○", "absent"], [data.unread[i], "?", "without a verdict"]].filter(([count]) => count);
      const told = make("td", "marks", marks.map(([count, mark]) => `${count} ${mark}`).join("  "));
      told.title = marks.map(([count, , word]) => `${count} ${word}`).join(", ");
      told.dataset.name = "claims";
      const tr = make("tr", "", head, ...cells, told);
      toggle.addEventListener("click", async () => {
        const open = toggle.getAttribute("aria-expanded") === "true";
        toggle.setAttribute("aria-expanded", String(!open));
        if (open) { tr.nextElementSibling.remove(); return; }
        const cell = make("td", "", "…");
        cell.colSpan = columns().length + 2;
        tr.after(make("tr", "detail", cell));
        details ??= await unpack("details");
        cell.replaceChildren(...detail(i, details.samples[i]));
      });
      toggle.dataset.sample = i;
      return tr;
    };

    const detail = (i, one) => {
      const values = make("p", "values");
      data.values.forEach((column, m) => {
        values.append(m ? "; " : "", `${about.measures[m]} `, make("b", "", column[i] === null ? "unscored" : number(column[i])));
        if (column[i] === null) values.append(` (${data.why[m][i]})`);
        const label = (one.labels || {})[about.measures[m]];
        if (label !== undefined) values.append(` (people: ${label})`);
      });
      const chunks = new Map();
      const right = make("div", "");
      right.append(make("h4", "", one.chunks.length ? `Contexts, best first (${one.chunks.length})` : "Contexts"));
      if (!one.chunks.length) right.append(make("p", "quiet", one.given ? "Nothing was retrieved." : "No contexts were given."));
      const list = make("ol", "");
      for (const [id, name, place] of one.chunks) {
        const said = (one.useful || {})[id];
        const lost = (one.unscored || []).find(([what]) => what === `useful ${id}`);
        const item = make("li", `chunk${said ? (said[0] ? " useful" : " useless") : lost ? " unscored" : ""}`);
        if (said) item.append(make("span", "badge", said[0] ? "✓ useful" : "✗ not useful"));
        else if (lost) item.append(make("span", "badge", "? unscored"));
        item.append(make("small", "", name ? `${id} · ${name}` : id));
        if (said && (said[1] || said[2] !== null)) item.append(words(said[1], said[2]));
        item.append(make("p", "words", place < 0 ? "This text is not in the page, to keep it small; samples.jsonl has it." : details.texts[place]));
        chunks.set(id, item);
        list.append(item);
      }
      right.append(list);

      const left = make("div", "");
      if (one.history) left.append(make("h4", "", "Before"), make("p", "words quiet", one.history.join("\n")));
      left.append(make("h4", "", "Question"), make("p", "words", data.questions[i] || "–"));
      left.append(make("h4", "", "Answer"), make("p", "words", data.answers[i] || "–"));
      claims(left, "answer", one, chunks);
      leftOut(left, "answer", one);
      if (one.reference !== undefined) left.append(make("h4", "", "Reference"), make("p", "words", one.reference || "–"));
      claims(left, "reference", one, chunks);
      leftOut(left, "reference", one);
      if (one.questions || one.refusal) {
        left.append(make("h4", "", "Questions that the answer would answer"));
        if (one.refusal) left.append(make("p", "quiet", "The answer commits itself to nothing."));
        const asked = make("ul", "");
        for (const [text, cosine] of one.questions || []) asked.append(make("li", "claim", make("span", "badge", `cosine ${cosine === null ? "–" : cosine.toFixed(3)}`), text));
        left.append(asked);
      }
      const parts = [values, make("div", "sample-texts", left, right)];
      if (one.unscored) {
        const lost = make("div", "missing", make("h4", "", "Without a verdict, and why"));
        for (const [what, why, reply] of one.unscored) {
          const item = make("div", "claim unscored", make("span", "badge", `? ${what}`), why);
          item.append(reply ? make("pre", "reply", reply) : make("p", "facts", "No reply was kept."));
          lost.append(item);
        }
        parts.push(lost);
      }
      if (one.metadata) parts.push(make("p", "values", Object.entries(one.metadata).map(([name, value]) => `${name}: ${value}`).join(" · ")));
      return parts;
    };

    const words = (said, probability) => {
      const facts = make("p", "facts");
      if (said) facts.append("judge: ", make("q", "", said));
      if (probability !== null) facts.append(`${said ? " · " : ""}probability ${probability}`);
      return facts;
    };

    const claims = (place, text, one, chunks) => {
      const found = one[`${text}_claims`];
      if (!found) {
        if ((one.asked || []).includes(text) && !(one.unscored || []).some(([what]) => what === `claims ${text}`) && (text === "answer" || one.reference !== undefined)) place.append(make("h4", "", `Claims of ${ASKED[text]}`), make("p", "quiet", "It claims nothing."));
        return;
      }
      place.append(make("h4", "", `Claims of ${ASKED[text]} (${found.length})`));
      const list = make("ol", "");
      for (const [id, said, sentence, state, by, joint, against, spoken, probability, why] of found) {
        const item = make("li", `claim ${state.replace(" ", "-")}`, make("span", "badge", `${MARKS[state]} ${state}`), said, " ", make("small", "", `${id}, sentence ${sentence}`));
        const facts = make("p", "facts");
        const listed = (title, sources) => {
          if (!sources.length) return;
          facts.append(facts.childNodes.length ? " · " : "", title);
          for (const source of sources) facts.append(chip(source, chunks));
        };
        listed("borne out by ", by);
        listed("borne out together by ", joint);
        listed("against: ", against);
        if (facts.childNodes.length) item.append(facts);
        if (spoken || probability !== null) item.append(words(spoken, probability));
        if (why) item.append(make("p", "facts", why));
        list.append(item);
      }
      place.append(list);
    };

    const leftOut = (place, text, one) => {
      const found = (one.left_out || {})[text];
      if (!found) return;
      const list = make("ul", "left-out");
      for (const sentence of found) list.append(make("li", "claim quiet", sentence));
      place.append(make("h4", "", `Left out of ${ASKED[text]} because it claims nothing (${found.length})`), list);
    };

    const chip = (source, chunks) => {
      const target = chunks.get(source);
      if (!target) return make("span", "", source === "k*" ? "the contexts together" : `the ${source}`);
      const button = make("button", "chip", source);
      button.type = "button";
      button.addEventListener("click", () => {
        for (const other of chunks.values()) other.classList.toggle("lit", other === target && !other.classList.contains("lit"));
        if (target.classList.contains("lit")) target.scrollIntoView({ block: "nearest" });
      });
      return button;
    };

    // What is chosen stands in the address, so that a view can be sent to somebody: #samples?show=unscored&open=q7
    const usual = { show: showBox.value, search: "", measure: measureBox.value };
    const boxes = { show: showBox, search, measure: measureBox };
    const remember = () => {
      const chosen = new URLSearchParams();
      for (const [name, box] of Object.entries(boxes)) if (box.value !== usual[name]) chosen.set(name, name === "measure" && box.value !== "-1" ? about.measures[box.value] : box.value);
      const open = table.querySelector('.open[aria-expanded="true"]');
      if (open) chosen.set("open", data.ids[open.dataset.sample]);
      const address = `#samples${chosen.size ? `?${chosen}` : ""}`;
      if (location.hash !== address && (chosen.size || location.hash.startsWith("#samples"))) history.replaceState(null, "", address);
    };
    const recall = () => {
      const [section, query] = location.hash.slice(1).split(/\?(.*)/s);
      if (section !== "samples" || !query) return;
      const chosen = new URLSearchParams(query);
      showBox.value = chosen.get("show") in kept ? chosen.get("show") : usual.show;
      search.value = chosen.get("search") || "";
      const measure = chosen.get("measure");
      measureBox.value = measure === "-1" ? "-1" : about.measures.includes(measure) ? about.measures.indexOf(measure) : usual.measure;
      resort();
      filter();
      at("samples").scrollIntoView();
      const wanted = data.ids.indexOf(chosen.get("open"));
      const row = rows.indexOf(wanted);
      if (row < 0) return;
      page = Math.floor(row / PAGE);
      show();
      table.querySelector(`.open[data-sample="${wanted}"]`).click();
    };
    const resort = () => {
      const column = Number(measureBox.value);
      sort = { column, up: column < 0 || !about.lower[column] };
    };
    const again = () => { filter(); remember(); };
    showBox.addEventListener("change", again);
    measureBox.addEventListener("change", () => { resort(); again(); });
    table.addEventListener("click", () => setTimeout(remember));
    addEventListener("hashchange", recall);
    let typing;
    search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(again, 60); });
    search.form.addEventListener("submit", (event) => event.preventDefault());
    at("s-before").addEventListener("click", () => { page--; show(); });
    at("s-after").addEventListener("click", () => { page++; show(); });
    for (const heading of table.querySelectorAll("[data-sort]")) heading.addEventListener("click", () => {
      const column = Number(heading.dataset.sort);
      sort = { column, up: sort.column === column ? !sort.up : column < 0 || !about.lower[column] };
      measureBox.value = column;
      filter();
    });
    table.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      const toggles = [...table.querySelectorAll(".open")];
      const next = toggles.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      if (document.activeElement.classList.contains("open") && toggles[next]) { event.preventDefault(); toggles[next].focus(); }
    });
    document.addEventListener("keydown", (event) => {
      const typed = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
      if (event.key === "/" && !typed && !event.ctrlKey && !event.metaKey) { event.preventDefault(); search.focus(); }
      if (document.activeElement !== search) return;
      if (event.key === "Escape") { search.value = ""; again(); }
      if (event.key === "ArrowDown") { event.preventDefault(); table.querySelector(".open")?.focus(); }
    });
    filter();
    recall();
    root.dataset.samples = "ready";
  };

  browse().catch((error) => {
    at("s-count").textContent = `The list of samples cannot be shown in this browser: ${error.message}`;
  });
})();
