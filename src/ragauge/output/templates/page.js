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
  window.ragauge = { make, read, unpack, root }; // for the script of the explorer

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

  // Charts are drawn last: a script that follows can set `ready`.
  addEventListener("DOMContentLoaded", async () => {
    await window.ragauge.ready;
    await draw();
  });
})();
