// The rows of one page of a table. Python sorts, filters and pages: a click only asks it to.

async function named(model, name) {
  const id = model.get(name).replace("IPY_MODEL_", "");
  for (let waited = 0; !model.widget_manager.has_model(id) && waited < 60000; waited += 50) {
    await new Promise((next) => setTimeout(next, 50));
  }
  return model.widget_manager.get_model(id);
}

const TEXTS = ["scheme", "status", "reason"]; // what is read from the left; all else is numbers and words
const CHOSEN = "var(--jp-layout-color3, #8884)";

async function render({ model, el }) {
  const table = await named(model, "model");
  const place = document.createElement("div");
  place.className = "dietlab-trials";
  place.style.cssText = "overflow-x:auto;max-width:100%";
  place.dataset.lmSuppressShortcuts = "true"; // Enter is for the table, not for the cell above it
  el.appendChild(place);

  const ask = (what) => {
    table.set("asked", { ...what, count: (table.get("asked").count ?? 0) + 1 });
    table.save_changes();
  };
  const make = (name, text, look, clicked) => {
    const made = document.createElement(name);
    made.textContent = text;
    made.style.cssText = look;
    made.addEventListener("click", clicked);
    made.addEventListener("keydown", (event) => { if (event.key === "Enter") clicked(); });
    made.tabIndex = 0;
    return made;
  };
  const draw = () => {
    const shown = table.get("shown");
    const focused = [...place.querySelectorAll("[tabindex]")].indexOf(document.activeElement);
    const body = document.createElement("table");
    body.style.cssText = "border-collapse:collapse;font-size:var(--jp-ui-font-size1,13px)";
    const side = (name) => `text-align:${TEXTS.includes(name) ? "left" : "right"}`;
    // Heads and reasons break into lines: the table is as wide as its numbers.
    const head = body.createTHead().insertRow();
    for (const [name, text] of shown.columns ?? []) {
      const arrow = name === shown.sort ? (shown.descending ? " ▼" : " ▲") : "";
      const look = "cursor:pointer;padding:3px 7px;vertical-align:bottom;border-bottom:1px solid #767676";
      head.appendChild(make("th", text + arrow, `${look};${side(name)}`, () => ask({ sort: name })));
    }
    const rows = body.createTBody();
    (shown.rows ?? []).forEach((values, at) => {
      const scheme = shown.schemes[at];
      const row = make("tr", "", "cursor:pointer", () => ask({ scheme }));
      row.setAttribute("aria-selected", scheme === shown.chosen);
      if (scheme === shown.chosen) row.style.background = CHOSEN;
      values.forEach((value, column) => {
        const name = shown.columns[column][0], cell = row.insertCell();
        cell.textContent = value;
        cell.style.cssText = `padding:2px 7px;${side(name)};white-space:${name === "reason" ? "normal" : "nowrap"}`;
      });
      rows.appendChild(row);
    });
    place.replaceChildren(body);
    if (focused >= 0) place.querySelectorAll("[tabindex]")[focused]?.focus();
  };
  table.on("change:shown", draw);
  draw();
  return () => table.off("change:shown", draw);
}

export default { render };
