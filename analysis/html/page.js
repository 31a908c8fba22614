// Makes every table sortable: by number where all of a column's values are numbers, else as text.
"use strict";
(() => {
  const order = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  const read = (row, column) => row.cells[column].dataset.value;

  const sort = (table, header, column) => {
    const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const rows = [...table.tBodies[0].rows];
    const known = rows.filter((row) => read(row, column) !== "");
    const numeric = known.every((row) => Number.isFinite(Number(read(row, column))));
    const compare = numeric
      ? (a, b) => Number(read(a, column)) - Number(read(b, column))
      : (a, b) => order.compare(read(a, column), read(b, column));
    known.sort((a, b) => direction * compare(a, b));
    // What was not measured stays at the end, whichever way the rest is sorted.
    table.tBodies[0].append(...known, ...rows.filter((row) => read(row, column) === ""));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  };

  for (const table of document.querySelectorAll("section.table table")) {
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", table.parentElement.querySelector("h2").textContent);
    table.replaceWith(scroll);
    scroll.append(table);
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => sort(table, header, column));
      if (["command", "directory"].includes(button.textContent)) {
        for (const row of table.tBodies[0].rows) row.cells[column].classList.add("code");
      }
    });
  }
  document.documentElement.dataset.ready = "true";
})();
