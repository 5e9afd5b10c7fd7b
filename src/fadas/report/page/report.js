"use strict";
// The interactive curves and timelines of report.html. Without JavaScript, and in print, the page has static figures.
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const AXES = [data.clock, "client updates", "server steps"];
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99],
    [170, 220, 50], [253, 231, 37]];
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true, displaylogo: false, displayModeBar: true, plotlyServerURL: "",
    // Only these: Plotly has a button that sends the data to its cloud.
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: "fadas" },
  };
  const font = { family: "system-ui, sans-serif", size: 13, color: "#1c2430" };
  const modebar = { bgcolor: "rgba(0,0,0,0)", color: "#9aa5b1", activecolor: "#1769aa" };
  // On a logarithmic axis: 1, 2 and 5 of each decade, written out. Plotly would write "2" for 20.
  const scaled = (log, format, room) => (log
    ? { type: "log", nticks: Math.max(3, Math.min(7, Math.floor(room / 110))), tickformat: format || ",~r" }
    : { type: "linear", tickformat: format });
  const grid = { gridcolor: "#e9edf1", zeroline: false, linecolor: "#9aa5b1", showline: true, automargin: true };

  if (!(await loadPlotly())) return;
  document.documentElement.classList.add("interactive");
  drawCurves(document.getElementById("curves"));
  drawTimelines(document.getElementById("timelines"));

  // Plotly is in the page, compressed. Its hash is in the page's content security policy.
  async function loadPlotly() {
    if (typeof DecompressionStream === "undefined") return false;
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    return typeof Plotly !== "undefined";
  }

  function make(kind, parent, properties = {}) {
    const element = Object.assign(document.createElement(kind), properties);
    parent.append(element);
    return element;
  }

  // A name is text, not markup: Plotly would read tags.
  function plain(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function choice(parent, label, options, onChange, chosen = 0) {
    const box = make("label", parent, { textContent: label });
    const select = make("select", box);
    options.forEach((text, value) => make("option", select, { textContent: text, value, selected: value === chosen }));
    select.addEventListener("change", () => onChange(Number(select.value)));
    return select;
  }

  function line(colour, dash) {
    const dashes = ["", "5 3", "7 2 1.5 2", "1.5 2"][dash];
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({ class: "swatch", width: 22, height: 8 })) svg.setAttribute(key, value);
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const look = { x1: 1, y1: 4, x2: 21, y2: 4, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dashes };
    for (const [key, value] of Object.entries(look)) stroke.setAttribute(key, value);
    svg.append(stroke);
    return svg;
  }

  function drawCurves(root) {
    const state = { metric: 0, axis: 0, logX: null, logY: 0, band: 0, smooth: 0, hidden: new Set() };
    const controls = make("div", root, { className: "controls" });
    const redraw = (change) => { Object.assign(state, change); draw(); };
    choice(controls, "metric", data.metrics.map((one) => one.label), (metric) => redraw({ metric }));
    choice(controls, "against", AXES, (axis) => { scale.value = "0"; redraw({ axis, logX: null }); });
    const scale = choice(controls, "x axis", ["automatic", "linear", "logarithmic"], (one) =>
      redraw({ logX: [null, false, true][one] }));
    choice(controls, "y axis", ["linear", "logarithmic"], (logY) => redraw({ logY }));
    const several = data.methods.some((method) => method.runs.length > 1);
    if (several) {
      const bands = ["± one standard deviation", "95 % interval of the mean", "every seed", "mean only"];
      choice(controls, "spread over seeds", bands, (band) => redraw({ band }));
    }
    const box = make("label", controls);
    const amount = make("span", box, { textContent: "smoothing: none" });
    const slider = make("input", box, { type: "range", min: 0, max: 20, value: 0, ariaLabel: "smoothing" });
    slider.addEventListener("input", () => {
      amount.textContent = slider.value === "0" ? "smoothing: none" : `smoothing: ${slider.value}% of the curve`;
      redraw({ smooth: Number(slider.value) / 100 });
    });
    const chips = make("div", root, { className: "chips" });
    const buttons = data.methods.map((method, number) => {
      const button = make("button", chips, { type: "button", title: "show or hide" });
      button.append(line(method.colour, method.dash), method.name || "(no name)");
      button.addEventListener("click", () => {
        state.hidden.has(number) ? state.hidden.delete(number) : state.hidden.add(number);
        draw();
      });
      return button;
    });
    if (data.methods.length > 2) {
      const all = make("button", chips, { type: "button", className: "all", textContent: "all / none" });
      all.addEventListener("click", () => {
        const hide = state.hidden.size === 0 ? data.methods.map((_, number) => number) : [];
        redraw({ hidden: new Set(hide) });
      });
    }
    const chart = make("div", root, { className: "chart" });
    const how = touch ? "Tap for values. The buttons above the plot zoom."
      : "Drag to zoom, double-click to see everything. Move over a curve for values.";
    const dotted = several ? " Thin and dotted: not all seeds have got that far." : "";
    const hint = make("p", root, { className: "hint" });
    draw();

    function draw() {
      buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(!state.hidden.has(number))));
      const metric = data.metrics[state.metric];
      const shown = data.methods.map((method, number) => ({
        ...method, number, lines: method.runs.map((run) => lineOf(run, state.metric, state.axis)),
      })).filter(({ lines }) => lines.every(([x]) => x.length));
      const ends = shown.flatMap(({ lines }) => lines.map(([x]) => x[x.length - 1]));
      const logX = state.logX ?? (state.axis === 0 && Math.max(...ends) > 5 * Math.min(...ends));
      let left = Infinity;
      for (const { lines } of shown) for (const [x] of lines) for (const one of x) if (one > 0 && one < left) left = one;
      const traces = shown.filter(({ number }) => !state.hidden.has(number))
        .flatMap((method) => tracesOf(method, metric, (x) => (logX && x <= 0 ? left : x)));
      const marks = metric.target === null ? {} : {
        shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: metric.target, y1: metric.target,
          line: { color: "#8b95a1", width: 1, dash: "dot" } }],
        annotations: [{ text: `target ${metric.percent ? `${Number((100 * metric.target).toPrecision(6))}%` : metric.target}`, showarrow: false, xref: "paper", x: 0.005,
          xanchor: "left", yanchor: "bottom", y: state.logY ? Math.log10(metric.target) : metric.target,
          font: { color: "#6c7783", size: 12 } }],
      };
      const layout = {
        font, showlegend: false, hovermode: touch ? "closest" : "x unified", hoverdistance: 40,
        dragmode: touch ? false : "zoom", margin: { l: 55, r: 16, t: 34, b: 46 },
        hoverlabel: { bgcolor: "rgba(255,255,255,.94)", font: { size: 12 } },
        modebar,
        xaxis: { ...grid, ...scaled(logX, "", chart.clientWidth), title: { text: AXES[state.axis] }, hoverformat: ",.5~r" },
        yaxis: { ...grid, ...scaled(state.logY, metric.percent ? "~%" : "", 550), title: { text: plain(metric.label) } },
        uirevision: `${state.metric} ${state.axis} ${logX} ${state.logY}`, ...marks,
      };
      Plotly.react(chart, traces, layout, config);
      const initial = shown.some(({ lines }) => lines.some(([x]) => x[0] <= 0));
      const origin = logX && initial ? " The x axis is logarithmic; the initial model stands at its left edge." : "";
      hint.textContent = how + dotted + origin;
    }

    // Centralised training has no virtual time: it is a level line at its last value.
    function lineOf({ curves, timeless }, metric, axis) {
      const values = curves[metric][3], last = values[values.length - 1];
      if (!(timeless && axis === 0 && data.until !== null && values.length)) return [curves[metric][axis], values];
      return [[0, data.until], [last, last]];
    }

    function tracesOf(method, metric, place) {
      const name = plain(method.name);
      const mean = average(method.lines);
      const width = state.smooth ? Math.max(2, Math.round(state.smooth * mean.x.length)) : 1;
      const y = smoothed(mean.mean, width), x = mean.x.map(place);
      const seeds = method.lines.length;
      const whole = mean.count.map((count, at) => (count === seeds ? at : -1)).filter((at) => at >= 0);
      const first = whole.length ? whole[0] : 0, last = whole.length ? whole[whole.length - 1] : -1;
      const line = { color: method.colour, width: 2, dash: DASHES[method.dash] };
      const quiet = { type: "scatter", mode: "lines", hoverinfo: "skip" };
      const traces = [];
      if (seeds > 1 && state.band < 2) {
        const margin = mean.std.map((std, at) =>
          state.band === 0 ? std : (data.t[mean.count[at]] * std) / Math.sqrt(mean.count[at]));
        const part = x.slice(first, last + 1);
        const shares = metric.percent && y.every((one) => one >= 0 && one <= 1); // no share is negative
        const limit = (one) => (shares ? Math.min(Math.max(one, 0), 1) : one);
        const low = y.map((one, at) => limit(one - margin[at])).slice(first, last + 1);
        const high = y.map((one, at) => limit(one + margin[at])).slice(first, last + 1);
        traces.push({ ...quiet, x: [...part, ...[...part].reverse()], y: [...high, ...low.reverse()], fill: "toself",
          fillcolor: method.colour, opacity: 0.13, line: { width: 0 } });
      }
      if (seeds > 1 && state.band === 2) {
        for (const [xs, ys] of method.lines) {
          traces.push({ ...quiet, x: xs.map(place), y: ys, opacity: 0.4, line: { ...line, width: 1 } });
        }
      }
      if (width > 1) traces.push({ ...quiet, x, y: mean.mean, opacity: 0.25, line: { ...line, width: 1 } });
      for (const part of [[0, first + 1], [last, x.length]]) {
        if (part[1] - part[0] > 1) {
          traces.push({ ...quiet, x: x.slice(...part), y: y.slice(...part), line: { ...line, width: 1.2, dash: "dot" } });
        }
      }
      const text = y.map((one, at) => {
        const spread = mean.count[at] > 1 ? ` ± ${deviation(mean.std[at], metric)}` : "";
        const some = mean.count[at] < seeds ? ` (${mean.count[at]} of ${seeds} seeds)` : "";
        return `<span style="color:${method.colour}">●</span> ${name}: ${number(one, metric)}${spread}${some}`;
      });
      // One trace carries the values to hover over, from the first seed's beginning to the last seed's end.
      traces.push({ type: "scatter", mode: "lines", x, y, text, line: { ...line, width: 0 }, opacity: 0.999,
        hovertemplate: "%{text}<extra></extra>", name });
      traces.push({ ...quiet, x: x.slice(first, last + 1), y: y.slice(first, last + 1), line, name });
      traces.push({ ...quiet, mode: "markers", x: x.slice(-1), y: y.slice(-1), marker: { color: method.colour, size: 6 } });
      return traces;
    }
  }

  function number(value, metric) {
    return metric.percent ? `${(100 * value).toFixed(1)}%` : String(Number(value.toPrecision(4)));
  }

  function deviation(value, metric) {
    return metric.percent ? (100 * value).toFixed(1) : String(Number(value.toPrecision(2)));
  }

  // The mean over the curves of several seeds. A curve keeps a value until its next point, and ends at its last one.
  function average(lines) {
    const x = [...new Set(lines.flatMap(([xs]) => xs))].sort((a, b) => a - b);
    const places = lines.map(() => -1);
    const mean = [], std = [], count = [], kept = [];
    for (const at of x) {
      const values = [];
      lines.forEach(([xs, ys], number) => {
        while (places[number] + 1 < xs.length && xs[places[number] + 1] <= at) places[number] += 1;
        if (places[number] >= 0 && at <= xs[xs.length - 1]) values.push(ys[places[number]]);
      });
      if (!values.length) continue;
      const middle = values.reduce((a, b) => a + b, 0) / values.length;
      const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
      kept.push(at); mean.push(middle); count.push(values.length);
      std.push(Math.sqrt(squares / Math.max(values.length - 1, 1)));
    }
    return { x: kept, mean, std, count };
  }

  function smoothed(values, width) {
    if (width < 2) return values;
    const sums = [0];
    for (const value of values) sums.push(sums[sums.length - 1] + value);
    return values.map((_, at) => {
      const low = Math.max(at - Math.floor(width / 2), 0), high = Math.min(at + Math.floor((width + 1) / 2), values.length);
      return (sums[high] - sums[low]) / (high - low);
    });
  }

  function viridis(share) {
    const at = Math.min(share * (VIRIDIS.length - 1), VIRIDIS.length - 1.001), low = Math.floor(at);
    return `rgb(${VIRIDIS[low].map((from, part) => Math.round(from + (at - low) * (VIRIDIS[low + 1][part] - from)))})`;
  }

  function drawTimelines(root) {
    const lines = data.timelines.filter(({ jobs }) => jobs.length);
    if (!root || !lines.length) return;
    const controls = make("div", root, { className: "controls" });
    choice(controls, "method", lines.map(({ name }) => name), draw);
    const chart = make("div", root, { className: "chart" });
    const hint = make("p", root, { className: "hint" });
    draw(0);

    function draw(chosen) {
      const [rows, clients, starts, durations, versions, taus] = lines[chosen].jobs;
      const least = Math.min(...versions), most = Math.max(...versions);
      const share = (version) => (version - least) / Math.max(most - least, 1);
      const bars = {
        type: "bar", orientation: "h", x: durations, base: starts, y: rows, width: rows.map(() => 0.8),
        customdata: clients.map((client, at) => [client, versions[at], taus[at], starts[at] + durations[at]]),
        hovertemplate: "client %{customdata[0]}, from version %{customdata[1]}, delay %{customdata[2]}<br>" +
          "%{base:.4~r} to %{customdata[3]:.4~r}<extra></extra>",
        marker: { color: versions.map((version) => viridis(share(version))), line: { width: 0 } },
      };
      const scale = {
        type: "scatter", mode: "markers", x: [null], y: [null], hoverinfo: "skip",
        marker: { color: [least], colorscale: VIRIDIS.map((colour, at) => [at / (VIRIDIS.length - 1), `rgb(${colour})`]),
          cmin: least, cmax: Math.max(most, least + 1), showscale: most > least,
          colorbar: { title: { text: "started from version", side: "right" }, thickness: 12, tickformat: "d",
            nticks: Math.min(8, most - least + 1), outlinewidth: 0 } },
      };
      const few = new Map(rows.map((row, at) => [row, clients[at]]));
      const layout = {
        font, showlegend: false, barmode: "overlay", hovermode: "closest", dragmode: touch ? false : "zoom",
        margin: { l: 45, r: 12, t: 34, b: 46 }, modebar,
        xaxis: { ...grid, title: { text: lines[chosen].clock }, rangemode: "tozero" },
        yaxis: { ...grid, showgrid: false, title: { text: "clients, slowest on top" }, range: [-0.5, lines[chosen].rows - 0.5],
          ...(few.size <= 20 ? { tickvals: [...few.keys()], ticktext: [...few.values()].map(String) } : { showticklabels: false }) },
      };
      Plotly.react(chart, [bars, scale], layout, config);
      const { left } = lines[chosen];
      hint.textContent = "First seed. A bar is a job whose update reached a server step."
        + (left ? ` The first ${rows.length.toLocaleString("en")} jobs; ${left.toLocaleString("en")} more are not drawn.` : "")
        + (most === least ? ` All jobs started from version ${least}.` : "");
    }
  }
})();
