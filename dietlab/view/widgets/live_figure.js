// A plotly figure that lives in one synced trait. plotly.js itself comes once a kernel, in the model that
// `bundle` names, and is evaluated once a page: every figure asks for it here.

// The model that a trait names. While a page is loaded again, models come in any order.
async function named(model, name) {
  const id = model.get(name).replace("IPY_MODEL_", "");
  for (let waited = 0; !model.widget_manager.has_model(id) && waited < 60000; waited += 50) {
    await new Promise((next) => setTimeout(next, 50));
  }
  return model.widget_manager.get_model(id);
}

function plotly(model) {
  window.__dietlabPlotly ??= (async () => {
    const bundle = await named(model, "bundle");
    const before = window.Plotly; // another plotly on the page is left alone
    const loaded = new Function("define", "module", "exports", `${bundle.get("js")}\n;return window.Plotly;`)();
    if (before) window.Plotly = before;
    return loaded;
  })().catch((error) => {
    window.__dietlabPlotly = undefined; // the next figure tries again
    throw error;
  });
  return window.__dietlabPlotly;
}

// Text and grid follow the page's theme; the background is the page's own.
function themed(figure, element) {
  const style = getComputedStyle(element);
  const variable = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  const dark = document.body.dataset.jpThemeLight === "false";
  const text = variable("--jp-ui-font-color1", dark ? "#eee" : "#222");
  const lines = variable("--jp-ui-font-color2", dark ? "#bbb" : "#555");
  const grid = dark ? "#3a3a3a" : "#e3e3e3";
  // Without a height of its own a figure that is drawn again where there is no room stays flat.
  const layout = { height: 450, ...figure.layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  layout.font = { ...layout.font, color: text };
  layout.hoverlabel = {
    bgcolor: variable("--jp-layout-color0", dark ? "#111" : "#fff"), bordercolor: lines,
    font: { color: text }, ...layout.hoverlabel,
  };
  const colours = { gridcolor: grid, zerolinecolor: grid, linecolor: lines, tickcolor: lines };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(name)) layout[name] = { ...layout[name], ...colours };
  }
  const fonts = Object.fromEntries(["label", "tick", "range"].map((name) => [`${name}font`, { color: text }]));
  const data = (figure.data ?? []).map((one) => (one.type === "parcoords" ? { ...one, ...fonts } : one));
  return { data, layout };
}

// A file that the kernel made goes where the browser puts downloads: once, however often a figure is shown.
function takeFiles(model) {
  if (model.dietlabTakesFiles) return;
  model.dietlabTakesFiles = true;
  model.on("msg:custom", ({ name, mime }, buffers) => {
    const address = URL.createObjectURL(new Blob(buffers, { type: mime }));
    const link = Object.assign(document.createElement("a"), { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  });
}

// Figures are drawn in turns: a page of many goes on answering meanwhile.
function inTurn(draw) {
  const before = window.__dietlabTurn ?? Promise.resolve();
  const turn = before.then(() => new Promise((next) => setTimeout(next))).then(draw);
  window.__dietlabTurn = turn.catch(() => {});
  return turn;
}

async function render({ model, el }) {
  const place = document.createElement("div");
  place.className = "dietlab-figure";
  // As wide as there is room, whatever is drawn in it: else a narrower window would not make it narrower.
  place.style.cssText = "width: 0; min-width: 100%";
  el.appendChild(place);
  const shown = await named(model, "model");
  takeFiles(shown);
  let library = null, drawing = false, outdated = false, listening = false, width = 0;

  // A burst of changes is drawn once, with the newest.
  const draw = async () => {
    if (!library) return;
    if (drawing) { outdated = true; return; }
    drawing = true;
    try {
      const { data, layout } = themed(JSON.parse(shown.get("figure_json")), el);
      // plotly's own way to follow a window forgets the height.
      width = Math.floor(place.getBoundingClientRect().width);
      if (width) layout.width = width;
      await inTurn(() => library.react(place, data, layout, { displaylogo: false }));
      if (!listening) {
        listening = true;
        place.on("plotly_click", ({ points: [point] }) => {
          const at = { trace: point.curveNumber, point: point.pointNumber ?? null, x: point.x, y: point.y };
          shown.set("clicked", { ...at, count: (shown.get("clicked").count ?? 0) + 1 });
          shown.save_changes();
        });
      }
    } finally {
      drawing = false;
      if (outdated) { outdated = false; draw(); }
    }
  };

  // A view is made before it is in the page: only there does it get its width.
  const sizes = new ResizeObserver(() => {
    if (listening && el.offsetParent && Math.floor(place.getBoundingClientRect().width) !== width) draw();
  });
  sizes.observe(el);
  shown.on("change:figure_json", draw);
  const themes = new MutationObserver(draw);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light"] });
  plotly(model).then(
    (loaded) => { library = loaded; return draw(); },
    (error) => { place.textContent = `The figure cannot be drawn: ${error}`; },
  );
  return () => {
    sizes.disconnect();
    themes.disconnect();
    shown.off("change:figure_json", draw);
    if (library) library.purge(place);
  };
}

export default { render };
