"use strict";
// Lists of queries or samples: search, filters, sorting, pages, keyboard, details, and a state in the address.
// `VIEWS` at the end has what differs: the controls, the columns, and what an opened row shows.
(() => {
  const { make, read, unpack, root } = window.ragauge;
  const PAGE_SIZE = 50;
  const SEARCH_DELAY_MS = 60;
  const MAX_SCORE_COLUMNS = 5; // more would leave no room for the question
  const MAX_MISSING_DOCUMENTS = 10;

  const formatCount = (count) => count.toLocaleString("en");
  const formatScore = (value) => (value === null ? "–" : value.toFixed(4));
  const formatChange = (value) => (value === null ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(4));

  // --- shared by both lists ---

  const buildControl = (name, { label, options, initial }) => {
    const box = make(options ? "select" : "input", "");
    box.id = name;
    for (const [value, text, address] of options || []) {
      const option = Object.assign(make("option", "", text), { value });
      option.dataset.address = address ?? text;
      box.append(option);
    }
    if (!options) Object.assign(box, { type: "search", placeholder: "text or id", autocomplete: "off" });
    else if (initial !== undefined) box.value = initial;
    return { box, initial: box.value, label: make("label", "", `${label} `, box) };
  };

  const buildHeading = (column) => {
    const content = column.sortable === false ? column.title : make("button", "", column.title);
    const cell = make("th", column.className || "", content);
    cell.scope = "col";
    if (column.sortable === false) return cell;
    Object.assign(content, { type: "button" }).dataset.sort = column.key;
    cell.setAttribute("aria-sort", "none");
    if (column.tooltip) cell.title = column.tooltip;
    return cell;
  };

  const buildList = async (place) => {
    const name = place.dataset.explorer;
    const settings = read(name);
    const values = await unpack(`${name}-values`);
    const view = VIEWS[settings.kind](settings, values, async (payload) => (document.getElementById(`${name}-${payload}`) ? unpack(`${name}-${payload}`) : null));
    const section = place.closest("section").id;

    const controls = new Map(Object.entries({ search: { label: "Search" }, ...view.controls }).map(([key, control]) => [key, buildControl(`${name}-${key}`, control)]));
    const search = controls.get("search").box;
    const form = make("form", "controls", ...[...controls.values()].map((control) => control.label));
    form.setAttribute("role", "search");
    const count = make("p", "legend");
    count.id = `${name}-count`;
    count.setAttribute("aria-live", "polite");
    const headings = new Map(view.columns.map((column) => [column.key, buildHeading(column)]));
    const table = make("table", `grid explorer-table ${settings.kind}`, make("thead", "", make("tr", "", ...headings.values())), make("tbody", ""));
    table.id = `${name}-table`;
    const [previous, next] = ["Previous", "Next"].map((text) => Object.assign(make("button", "", text), { type: "button", id: `${name}-${text.toLowerCase()}` }));
    const pageText = make("span", "");
    pageText.id = `${name}-page`;
    place.replaceChildren(form, count, make("div", "scroll", table), make("p", "pager", previous, " ", pageText, " ", next));

    const searched = values.ids.map((id, i) => `${id}\n${view.searchText(i)}`.toLowerCase());
    let sort = view.initialSort;
    let rows = [];
    let page = 0;

    const filter = () => {
      view.choose((control) => controls.get(control).box.value, sort);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows = [];
      for (let i = 0; i < values.ids.length; i++) if (view.matches(i) && words.every((word) => searched[i].includes(word))) rows.push(i);
      // Items without a value come last in both directions.
      const last = sort.up ? Infinity : -Infinity;
      const keys = new Map(rows.map((i) => [i, view.sortValue(i, sort) ?? last]));
      rows.sort((a, b) => (sort.up ? keys.get(a) - keys.get(b) : keys.get(b) - keys.get(a)) || a - b);
      page = 0;
      show();
    };

    const show = () => {
      const pages = Math.max(1, Math.ceil(rows.length / PAGE_SIZE));
      page = Math.min(Math.max(0, page), pages - 1);
      table.tBodies[0].replaceWith(make("tbody", "", ...rows.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).map(buildRow)));
      for (const [key, cell] of headings) {
        if (cell.hasAttribute("aria-sort")) {
          cell.setAttribute("aria-sort", key === sort.key ? (sort.up ? "ascending" : "descending") : "none");
          cell.firstChild.textContent = view.title(key);
        }
        cell.hidden = view.isHidden(key);
      }
      count.textContent = `${formatCount(rows.length)} of ${formatCount(values.ids.length)} ${values.ids.length === 1 ? settings.noun : settings.plural}${view.summarise(rows)}`;
      pageText.textContent = `page ${page + 1} of ${pages}`;
      previous.disabled = page === 0;
      next.disabled = page >= pages - 1;
    };

    const buildRow = (i) => {
      const toggle = Object.assign(make("button", "open"), { type: "button" });
      toggle.setAttribute("aria-expanded", "false");
      toggle.dataset.item = i;
      const text = view.text(i);
      toggle.append(text || values.ids[i]);
      if (text) toggle.append(" ", make("span", "id", values.ids[i]));
      const head = make("th", "", toggle);
      head.scope = "row";
      const row = make("tr", "", head, ...view.cells(i));
      toggle.addEventListener("click", async () => {
        const isOpen = toggle.getAttribute("aria-expanded") === "true";
        toggle.setAttribute("aria-expanded", String(!isOpen));
        if (isOpen) {
          row.nextElementSibling.remove();
          return;
        }
        const cell = make("td", "", "…");
        cell.colSpan = row.cells.length;
        row.after(make("tr", "detail", cell));
        cell.replaceChildren(...(await view.details(i)));
      });
      return row;
    };

    // The address has all choices, so that a link shows the same rows: #report-queries?show=worse&open=q7
    const writeAddress = () => {
      const state = new URLSearchParams();
      for (const [key, { box, initial }] of controls) if (box.value !== initial) state.set(key, box.selectedOptions?.[0].dataset.address ?? box.value);
      const opened = table.querySelector('.open[aria-expanded="true"]');
      if (opened) state.set("open", values.ids[opened.dataset.item]);
      const address = `#${section}${state.size ? `?${state}` : ""}`;
      if (location.hash !== address && (state.size || location.hash.slice(1).split("?")[0] === section)) history.replaceState(null, "", address);
    };
    const readAddress = () => {
      const [target, query] = location.hash.slice(1).split(/\?(.*)/s);
      if (target !== section || !query) return;
      const state = new URLSearchParams(query);
      for (const [key, { box, initial }] of controls) {
        const value = state.get(key);
        const option = [...(box.options || [])].find((one) => one.value === value || one.dataset.address === value);
        box.value = value === null ? initial : box.options ? (option?.value ?? initial) : value;
      }
      sortAsChosen();
      filter();
      document.getElementById(section).scrollIntoView();
      const item = values.ids.indexOf(state.get("open"));
      const row = rows.indexOf(item);
      if (row < 0) return;
      page = Math.floor(row / PAGE_SIZE);
      show();
      table.querySelector(`.open[data-item="${item}"]`).click();
    };
    const sortAsChosen = () => {
      if (!view.sortControl) return;
      const key = controls.get(view.sortControl).box.value;
      sort = { key, up: view.isAscendingAtFirst(key) };
    };
    const update = () => {
      filter();
      writeAddress();
    };

    for (const [key, { box }] of controls) {
      if (box === search) continue;
      box.addEventListener("change", () => {
        if (key === view.sortControl) sortAsChosen();
        update();
      });
    }
    let typing;
    search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(update, SEARCH_DELAY_MS);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    table.addEventListener("click", (event) => {
      const key = event.target.closest("[data-sort]")?.dataset.sort;
      if (key !== undefined) {
        sort = { key, up: sort.key === key ? !sort.up : view.isAscendingAtFirst(key) };
        if (view.sortControl) controls.get(view.sortControl).box.value = key;
        filter();
      }
      setTimeout(writeAddress);
    });
    addEventListener("hashchange", readAddress);
    const turnPage = (step) => {
      page += step;
      show();
    };
    previous.addEventListener("click", () => turnPage(-1));
    next.addEventListener("click", () => turnPage(1));
    table.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !document.activeElement.matches(".open, thead button")) return;
      const toggles = [...table.querySelectorAll(".open")];
      const target = toggles[toggles.indexOf(document.activeElement) + step];
      if (!target) return;
      event.preventDefault();
      target.focus();
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
      if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        search.focus();
      }
      if (document.activeElement !== search) return;
      if (event.key === "Escape") {
        search.value = "";
        update();
      }
      if (event.key === "ArrowDown") {
        event.preventDefault();
        table.querySelector(".open")?.focus();
      }
    });
    filter();
    readAddress();
  };

  // --- rankings: queries with the scores of two systems; a row opens to both rankings ---

  const viewRankings = (settings, values, load) => {
    const alone = settings.systems.length === 1;
    const named = (names) => names.map((name, i) => [String(i), name]);
    const shows = [["all", `all ${settings.plural}`], ["better", "better"], ["worse", "worse"], ["equal", "equal"], ["zero", "score 0"], ["failed", "failed"]];
    const tags = values.tags.flatMap((tag, t) => tag.names.map((name, i) => [`${t} ${i}`, `${tag.tag}: ${name}`]));
    const isComparison = (show) => ["better", "worse", "equal"].includes(show);
    const controls = {
      measure: { label: "Measure", options: named(settings.measures) },
      system: { label: "System", options: named(settings.systems), initial: String(settings.system) },
      ...(alone ? {} : { baseline: { label: "against", options: named(settings.systems), initial: String(settings.baseline) } }),
      show: { label: "Show", options: shows.filter(([show]) => !alone || !isComparison(show)).map(([show, text]) => [show, text, show]) },
      ...(tags.length ? { tag: { label: `Kind of ${settings.noun}`, options: [["", "any kind"], ...tags] } } : {}),
    };
    const columns = [
      { key: "query", title: settings.noun[0].toUpperCase() + settings.noun.slice(1) },
      ...(alone ? [] : [{ key: "baseline", title: "", className: "n" }]),
      { key: "system", title: "", className: "n" },
      ...(alone ? [] : [{ key: "change", title: "Change", className: "n" }]),
    ];
    let measure, system, baseline, show, tag;
    let rankings = null;
    const scoreOf = (i) => values.values[measure][system][i];
    const baselineOf = (i) => values.values[measure][baseline][i];
    const changeOf = (i) => (scoreOf(i) === null || baselineOf(i) === null ? null : scoreOf(i) - baselineOf(i));
    const gainOf = (i) => {
      const change = changeOf(i);
      return change === null ? null : settings.lower_is_better[measure] ? -change : change;
    };
    const tests = {
      all: () => true,
      better: (i) => gainOf(i) > 0,
      worse: (i) => gainOf(i) !== null && gainOf(i) < 0,
      equal: (i) => gainOf(i) === 0,
      zero: (i) => scoreOf(i) === 0,
      failed: (i) => i in (values.failed[system] || {}),
    };

    const details = async (i) => {
      const scores = make("p", "values", `${settings.measures[measure]}: `);
      settings.systems.forEach((name, s) => scores.append(s ? ", " : "", `${name} `, make("b", "", formatScore(values.values[measure][s][i]))));
      const parts = [scores];
      for (const [s, errors] of Object.entries(values.failed)) if (i in errors) parts.push(make("p", "values down", `${settings.systems[s]} failed: ${errors[i]}`));
      rankings ??= await load("rankings");
      if (rankings === null) return parts;
      const place = rankings.places[i] ?? null;
      return [...parts, ...(place === null ? [make("p", "values", settings.unavailable)] : buildRankings(place))];
    };

    const buildRankings = (place) => {
      const grades = new Map();
      for (let j = rankings.judged.starts[place]; j < rankings.judged.starts[place + 1]; j++) grades.set(rankings.judged.docs[j], rankings.judged.grades[j]);
      const hitsOf = (s) => {
        const { starts, docs, scores } = rankings.lists[s];
        const hits = [];
        for (let j = starts[place]; j < starts[place + 1]; j++) hits.push({ doc: docs[j], score: scores[j], rank: j - starts[place] + 1 });
        return hits;
      };
      const shown = baseline === system ? [system] : [baseline, system];
      const hits = new Map(shown.map((s) => [s, hitsOf(s)]));
      const parts = shown.map((s) => {
        const other = shown.find((one) => one !== s);
        const items = hits.get(s).map((hit) => buildHit(hit, grades, other === undefined ? null : { name: settings.systems[other], hits: hits.get(other) }));
        return make("div", "", make("h4", "", settings.systems[s]), items.length ? make("ol", "", ...items) : make("p", "values", "no documents returned"));
      });
      const lists = make("div", "lists", ...parts);
      const markSameDocument = (event) => {
        const doc = event.target.closest("[data-doc]")?.dataset.doc;
        for (const item of lists.querySelectorAll("[data-doc]")) item.classList.toggle("same", doc !== undefined && item.dataset.doc === doc);
      };
      lists.addEventListener("mouseover", markSameDocument);
      lists.addEventListener("mouseleave", markSameDocument);
      const returned = new Set([...hits.values()].flat().map((hit) => hit.doc));
      const missing = [...grades].filter(([doc, grade]) => grade >= rankings.rel && !returned.has(doc)).sort((a, b) => b[1] - a[1]);
      if (!missing.length) return [lists];
      const more = missing.length > MAX_MISSING_DOCUMENTS ? ` (${MAX_MISSING_DOCUMENTS} of ${missing.length})` : "";
      const title = `Relevant, not in the first ${rankings.depth} of ${shown.length === 1 ? "the ranking" : "either ranking"}${more}`;
      const items = missing.slice(0, MAX_MISSING_DOCUMENTS).map(([doc]) => buildHit({ doc }, grades, null));
      return [lists, make("div", "missing", make("h4", "", title), make("ol", "", ...items))];
    };

    const buildHit = (hit, grades, other) => {
      const grade = grades.get(hit.doc);
      const isJudged = grade !== undefined;
      const [title, text] = rankings.texts[hit.doc] || ["", ""];
      const id = rankings.docs[hit.doc];
      const withId = title && title !== id && !title.startsWith(id);
      const main = make("div", "", make("span", "title", title || id), text || withId ? make("span", "text", withId ? `${id} · ${text}` : text) : "");
      const facts = make("div", "facts", make("span", "grade", isJudged ? `grade ${grade}` : "unjudged"));
      if (hit.score !== undefined && hit.score !== null) facts.append(String(hit.score));
      if (other) {
        const same = other.hits.find((one) => one.doc === hit.doc);
        facts.append(make("span", "elsewhere", same ? `${other.name}: ${same.rank}` : `not in ${other.name}`));
      }
      const item = make("li", `hit${isJudged ? " judged" : ""}${isJudged && grade >= rankings.rel ? " relevant" : ""}`, make("span", "rank", hit.rank ? String(hit.rank) : ""), main, facts);
      item.dataset.doc = hit.doc;
      return item;
    };

    return {
      controls,
      columns,
      details,
      initialSort: alone ? { key: "system", up: !settings.lower_is_better[0] } : { key: "change", up: false, absolute: true },
      isAscendingAtFirst: (key) => key === "query",
      searchText: (i) => values.texts[i],
      text: (i) => values.texts[i],
      choose: (valueOf) => {
        [measure, system] = [Number(valueOf("measure")), Number(valueOf("system"))];
        baseline = alone ? system : Number(valueOf("baseline"));
        show = valueOf("show");
        tag = tags.length && valueOf("tag") ? valueOf("tag").split(" ").map(Number) : null;
      },
      matches: (i) => (tag === null || values.tags[tag[0]].of[i] === tag[1]) && tests[show](i),
      sortValue: (i, { key, absolute }) => {
        if (key === "query") return i;
        if (key !== "change") return key === "system" ? scoreOf(i) : baselineOf(i);
        return absolute && changeOf(i) !== null ? Math.abs(changeOf(i)) : changeOf(i);
      },
      title: (key) => ({ baseline: settings.systems[baseline], system: settings.systems[system] })[key] ?? columns.find((column) => column.key === key).title,
      isHidden: () => false,
      cells: (i) => {
        const score = make("td", "n", formatScore(scoreOf(i)));
        if (alone) return [score];
        const gain = gainOf(i);
        return [make("td", "n", formatScore(baselineOf(i))), score, make("td", `n${gain > 0 ? " up" : gain < 0 ? " down" : ""}`, formatChange(changeOf(i)))];
      },
      summarise: (rows) => {
        if (alone || system === baseline) return "";
        const counts = ["better", "worse", "equal"].map((test) => `${formatCount(rows.filter(tests[test]).length)} ${test}`);
        return `: ${counts.join(", ")}`;
      },
    };
  };

  // --- verdicts: judged samples with their scores; a row opens to the claims, their evidence and the contexts ---

  const CLAIM_MARKS = { supported: "✓", contradicted: "✗", absent: "○", unscored: "?", "not asked": "–" };
  const TEXT_NAMES = { answer: "the answer", reference: "the reference" };
  const ALL_CONTEXTS = "k*";

  const viewVerdicts = (settings, values, load) => {
    const { measures, lower_is_better } = settings;
    const FILE_ORDER = "file";
    const shows = { all: "all samples", unscored: "unscored", unread: "without a verdict", unsupported: "unsupported claims", contradicted: "contradicted claims" };
    const controls = {
      measure: { label: "Sort by", options: [...measures.map((name, m) => [String(m), `${name}, ${lower_is_better[m] ? "highest" : "lowest"} first`, name]), [FILE_ORDER, "order of the file", FILE_ORDER]] },
      show: { label: "Show", options: Object.entries(shows).map(([show, text]) => [show, text, show]) },
    };
    const columns = [
      { key: FILE_ORDER, title: "Sample" },
      ...measures.map((name, m) => ({ key: String(m), title: name, className: "n", tooltip: name })),
      { key: "claims", title: "Claims", className: "marks", sortable: false },
    ];
    let show;
    let sorted = null; // index of the measure by which rows are sorted
    let texts = null;
    const isUnscored = (i) => (sorted === null ? values.values.some((column) => column[i] === null) : values.values[sorted][i] === null);
    const tests = {
      all: () => true,
      unscored: isUnscored,
      unread: (i) => values.unread[i] > 0,
      unsupported: (i) => values.contradicted[i] + values.absent[i] > 0,
      contradicted: (i) => values.contradicted[i] > 0,
    };
    const shownMeasures = () => {
      const shown = measures.map((_, m) => m).slice(0, MAX_SCORE_COLUMNS);
      if (sorted !== null && sorted >= shown.length) shown[shown.length - 1] = sorted;
      return shown;
    };

    const details = async (i) => {
      texts ??= await load("details");
      const sample = texts.samples[i];
      const scores = make("p", "values");
      values.values.forEach((column, m) => {
        scores.append(m ? "; " : "", `${measures[m]} `, make("b", "", column[i] === null ? "unscored" : formatScore(column[i])));
        if (column[i] === null) scores.append(` (${values.reasons[m][i]})`);
        const label = (sample.labels || {})[measures[m]];
        if (label !== undefined) scores.append(` (label: ${label})`);
      });
      const [contexts, chunks] = buildContexts(sample);
      const left = make("div", "");
      if (sample.history) left.append(make("h4", "", "Conversation"), make("p", "words quiet", sample.history.join("\n")));
      left.append(make("h4", "", "Question"), make("p", "words", values.questions[i] || "–"));
      left.append(make("h4", "", "Answer"), make("p", "words", values.answers[i] || "–"));
      left.append(...buildClaims("answer", sample, chunks), ...buildSentences("answer", sample));
      if (sample.reference !== undefined) left.append(make("h4", "", "Reference"), make("p", "words", sample.reference || "–"));
      left.append(...buildClaims("reference", sample, chunks), ...buildSentences("reference", sample), ...buildQuestions(sample));
      const parts = [scores, make("div", "sample-texts", left, contexts)];
      if (sample.unscored) parts.push(make("div", "missing", make("h4", "", "No verdict"), ...sample.unscored.map(buildUnscored)));
      if (sample.metadata) parts.push(make("p", "values", Object.entries(sample.metadata).map(([name, value]) => `${name}: ${value}`).join(" · ")));
      return parts;
    };

    const buildContexts = (sample) => {
      const box = make("div", "", make("h4", "", sample.chunks.length ? `Contexts, best first (${sample.chunks.length})` : "Contexts"));
      if (!sample.chunks.length) box.append(make("p", "quiet", sample.given ? "No context was retrieved." : "The sample has no contexts."));
      const chunks = new Map();
      for (const [id, name, place] of sample.chunks) {
        const verdict = (sample.useful || {})[id];
        const isUnread = !verdict && (sample.unscored || []).some(([item]) => item === `useful ${id}`);
        const item = make("li", `chunk${verdict ? (verdict[0] ? " useful" : " useless") : isUnread ? " unscored" : ""}`);
        if (verdict) item.append(make("span", "badge", verdict[0] ? "✓ useful" : "✗ not useful"));
        else if (isUnread) item.append(make("span", "badge", "? unscored"));
        item.append(make("small", "", name ? `${id} · ${name}` : id));
        if (verdict && (verdict[1] || verdict[2] !== null)) item.append(buildExplanation(verdict[1], verdict[2]));
        item.append(make("p", "words", place < 0 ? "This text is not in the page because of its size; see samples.jsonl." : texts.texts[place]));
        chunks.set(id, item);
      }
      box.append(make("ol", "", ...chunks.values()));
      return [box, chunks];
    };

    const buildClaims = (text, sample, chunks) => {
      const claims = sample[`${text}_claims`];
      if (!claims) {
        const isJudged = (sample.tasks || []).includes(text) && (text === "answer" || sample.reference !== undefined);
        const isUnread = (sample.unscored || []).some(([item]) => item === `claims ${text}`);
        return isJudged && !isUnread ? [make("h4", "", `Claims of ${TEXT_NAMES[text]}`), make("p", "quiet", "No claims.")] : [];
      }
      return [make("h4", "", `Claims of ${TEXT_NAMES[text]} (${claims.length})`), make("ol", "", ...claims.map((claim) => buildClaim(claim, chunks)))];
    };

    const buildClaim = ([id, text, sentence, state, by, together, against, explanation, probability, reason], chunks) => {
      const item = make("li", `claim ${state.replace(" ", "-")}`, make("span", "badge", `${CLAIM_MARKS[state]} ${state}`), text, " ", make("small", "", `${id}, sentence ${sentence}`));
      const facts = make("p", "facts");
      for (const [title, sources] of [["supported by ", by], ["supported together by ", together], ["contradicted by ", against]]) {
        if (sources.length) facts.append(facts.childNodes.length ? " · " : "", title, ...sources.map((source) => buildSource(source, chunks)));
      }
      if (facts.childNodes.length) item.append(facts);
      if (explanation || probability !== null) item.append(buildExplanation(explanation, probability));
      if (reason) item.append(make("p", "facts", reason));
      return item;
    };

    const buildSource = (source, chunks) => {
      const target = chunks.get(source);
      if (!target) return make("span", "", source === ALL_CONTEXTS ? "all contexts" : `the ${source}`);
      const button = Object.assign(make("button", "chip", source), { type: "button" });
      button.addEventListener("click", () => {
        for (const chunk of chunks.values()) chunk.classList.toggle("lit", chunk === target && !chunk.classList.contains("lit"));
        if (target.classList.contains("lit")) target.scrollIntoView({ block: "nearest" });
      });
      return button;
    };

    const buildExplanation = (explanation, probability) => {
      const facts = make("p", "facts");
      if (explanation) facts.append("judge: ", make("q", "", explanation));
      if (probability !== null) facts.append(`${explanation ? " · " : ""}probability ${probability}`);
      return facts;
    };

    const buildSentences = (text, sample) => {
      const sentences = (sample.left_out || {})[text];
      if (!sentences) return [];
      const items = sentences.map((sentence) => make("li", "claim quiet", sentence));
      return [make("h4", "", `Sentences of ${TEXT_NAMES[text]} without a claim (${sentences.length})`), make("ul", "left-out", ...items)];
    };

    const buildQuestions = (sample) => {
      if (!sample.questions && !sample.refusal) return [];
      const items = (sample.questions || []).map(([text, cosine]) => make("li", "claim", make("span", "badge", `cosine ${cosine === null ? "–" : cosine.toFixed(3)}`), text));
      return [make("h4", "", "Questions generated from the answer"), ...(sample.refusal ? [make("p", "quiet", "The answer is noncommittal.")] : []), make("ul", "", ...items)];
    };

    const buildUnscored = ([item, reason, reply]) =>
      make("div", "claim unscored", make("span", "badge", `? ${item}`), reason, reply ? make("pre", "reply", reply) : make("p", "facts", "No reply was saved."));

    return {
      controls,
      columns,
      details,
      sortControl: "measure",
      initialSort: measures.length ? { key: "0", up: !lower_is_better[0] } : { key: FILE_ORDER, up: true },
      isAscendingAtFirst: (key) => key === FILE_ORDER || !lower_is_better[key],
      searchText: (i) => `${values.questions[i]}\n${values.answers[i]}`,
      text: (i) => values.questions[i],
      choose: (valueOf, sort) => {
        show = valueOf("show");
        sorted = sort.key === FILE_ORDER ? null : Number(sort.key);
      },
      matches: (i) => tests[show](i),
      sortValue: (i) => (sorted === null ? i : values.values[sorted][i]),
      title: (key) => measures[key] ?? "Sample",
      isHidden: (key) => key in measures && !shownMeasures().includes(Number(key)),
      cells: (i) => {
        const scores = shownMeasures().map((m) => {
          const value = values.values[m][i];
          const cell = make("td", value === null ? "n none" : "n", value === null ? "unscored" : formatScore(value));
          cell.dataset.name = measures[m];
          if (value === null) cell.title = values.reasons[m][i] || "";
          return cell;
        });
        const marks = [[values.contradicted[i], "✗", "contradicted"], [values.absent[i], "○", "absent"], [values.unread[i], "?", "without a verdict"]].filter(([n]) => n);
        const claims = make("td", "marks", marks.map(([n, mark]) => `${n} ${mark}`).join("  "));
        claims.title = marks.map(([n, , state]) => `${n} ${state}`).join(", ");
        claims.dataset.name = "claims";
        return [...scores, claims];
      },
      summarise: (rows) => {
        const unscored = rows.filter(isUnscored).length;
        return unscored ? `; ${formatCount(unscored)} without ${sorted === null ? "a score" : measures[sorted]}` : "";
      },
    };
  };

  const VIEWS = { rankings: viewRankings, verdicts: viewVerdicts };

  const showList = async (place) => {
    try {
      await buildList(place);
    } catch (error) {
      place.replaceChildren(make("p", "legend", `The list cannot be shown in this browser: ${error.message}`));
    }
  };
  // Charts are drawn after the lists, so that a page can be used early.
  window.ragauge.ready = Promise.all([...document.querySelectorAll("[data-explorer]")].map(showList)).then(() => {
    root.dataset.explorer = "ready";
  });
})();
