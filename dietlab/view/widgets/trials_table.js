// The rows of one page of a table. Python sorts, filters and pages: a click only asks it to.

async function named(model, name) {
  const id = model.get(name).replace("IPY_MODEL_", "");
  for (let waited = 0; !model.widget_manager.has_model(id) && waited < 60000; waited += 50) {
    await new Promise((next) => setTimeout(next, 50));
  }
  return model.widget_manager.get_model(id);
}

const CHOSEN = "var(--jp-layout-color3, #8884)";

async function render({ model, el }) {
  const table = await named(model, "model");
  const place = document.createElement("div");
  place.className = "dietlab-trials";
  place.style.cssText = "overflow-x:auto;max-width:100%";
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
    return made;
  };
  const draw = () => {
    const shown = table.get("shown");
    const body = document.createElement("table");
    body.style.cssText = "border-collapse:collapse;font-size:var(--jp-ui-font-size1,13px);white-space:nowrap";
    const head = body.createTHead().insertRow();
    for (const [name, text] of shown.columns ?? []) {
      const arrow = name === shown.sort ? (shown.descending ? " ▼" : " ▲") : "";
      const look = "cursor:pointer;padding:3px 8px;text-align:right;border-bottom:1px solid #767676";
      const cell = make("th", text + arrow, look, () => ask({ sort: name }));
      cell.tabIndex = 0;
      head.appendChild(cell);
    }
    const rows = body.createTBody();
    (shown.rows ?? []).forEach((values, at) => {
      const scheme = shown.schemes[at];
      const row = make("tr", "", "cursor:pointer", () => ask({ scheme }));
      row.tabIndex = 0;
      if (scheme === shown.chosen) row.style.background = CHOSEN;
      for (const value of values) {
        const cell = row.insertCell();
        cell.textContent = value;
        cell.style.cssText = "padding:2px 8px;text-align:right";
      }
      rows.appendChild(row);
    });
    place.replaceChildren(body);
  };
  table.on("change:shown", draw);
  draw();
  return () => table.off("change:shown", draw);
}

export default { render };
