// Narrows the list while a name is typed; "/" goes to the field. Without it the form does the same.
"use strict";
const field = document.getElementById("q");
const said = document.getElementById("matching");
const rows = [...document.querySelectorAll("tr[data-name]")];
if (field && rows.length) {
  const shown = said.textContent;
  const before = field.value;
  field.addEventListener("input", () => {
    const text = field.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      row.hidden = !row.dataset.name.includes(text);
      count += !row.hidden;
    }
    said.textContent = field.value === before ? shown : `${count} of ${rows.length} shown`;
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    }
  });
}
