"use strict";
// Draws each plot of the page. A plot's data is numbers only: see `numbers` in html.rs.
const KINDS = ["new data", "sent again by TCP", "reinjected", "re-sent", "acknowledged", "never passed here"];
const [NEW, AGAIN, REINJECTED, RESENT, ACKED, MISSING] = KINDS.keys();
const LEFT = 74, RIGHT = 12, TOP = 20, BOTTOM = 28;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const size = (n) => {
  for (const [unit, of] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= of) return `${+(n / of).toFixed(2)} ${unit}`;
  return `${Math.round(n)} B`;
};
const seconds = (us) => `${+(us / 1e6).toFixed(6)} s`;

// Round steps of which about `count` fit into a range.
function steps(from, to, count) {
  const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) all.push(at);
  return all;
}

function plot(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const canvas = figure.querySelector("canvas"), at = figure.querySelector(".at");
  const marks = [], flat = data.marks;
  for (let i = 0, time = 0; i < flat.length; i += 6) {
    time += flat[i];
    marks.push({ t0: time, t1: time + flat[i + 1], b0: flat[i + 2], b1: flat[i + 2] + flat[i + 3], s: flat[i + 4], k: flat[i + 5] });
  }
  const whole = { t0: -data.us * 0.01, t1: data.us * 1.01 || 1, b0: -data.bytes * 0.02, b1: data.bytes * 1.05 || 1 };
  let view = { ...whole }, wide = 0, high = 0;
  const hidden = new Set();
  const isShown = (m) => !hidden.has(`k${m.k}`) && (m.k === ACKED || m.k === MISSING || !hidden.has(`s${m.s}`));
  const x = (t) => LEFT + (t - view.t0) / (view.t1 - view.t0) * (wide - LEFT - RIGHT);
  const y = (b) => high - BOTTOM - (b - view.b0) / (view.b1 - view.b0) * (high - TOP - BOTTOM);

  function axes(ink) {
    ink.font = "12px system-ui, sans-serif";
    ink.fillStyle = color("--soft");
    ink.strokeStyle = color("--grid");
    ink.textAlign = "center";
    for (const t of steps(view.t0, view.t1, wide / 110)) {
      if (t < 0) continue;
      ink.strokeRect(x(t), TOP, 0, high - TOP - BOTTOM);
      ink.fillText(seconds(t), x(t), high - BOTTOM + 17);
    }
    ink.textAlign = "right";
    for (const b of steps(view.b0, view.b1, high / 60)) {
      if (b < 0) continue;
      ink.strokeRect(LEFT, y(b), wide - LEFT - RIGHT, 0);
      ink.fillText(size(b), LEFT - 6, y(b) + 4);
    }
  }

  function signs(ink) {
    // Events lie close together: their words go to rows of their own, and are left out where rows are full.
    const ends = [0, 0, 0];
    ink.textAlign = "left";
    for (const [time, kind, subflow, words] of data.events) {
      const px = x(time);
      if (px < LEFT || px > wide - RIGHT) continue;
      ink.strokeStyle = ink.fillStyle = kind === 1 ? color("--bad") : color(`--k${subflow % 6}`);
      ink.setLineDash(kind === 1 ? [] : [3, 3]);
      ink.strokeRect(px, TOP, 0, high - TOP - BOTTOM);
      const row = ends.findIndex((end) => end < px);
      if (row < 0) continue;
      const width = ink.measureText(words).width, left = Math.min(px + 3, wide - RIGHT - width);
      ink.fillText(words, left, TOP + 12 + row * 14);
      ends[row] = left + width + 8;
    }
    ink.setLineDash([]);
  }

  function draw() {
    const scale = devicePixelRatio || 1;
    wide = canvas.clientWidth;
    high = canvas.clientHeight;
    canvas.width = wide * scale;
    canvas.height = high * scale;
    const ink = canvas.getContext("2d");
    ink.scale(scale, scale);
    ink.fillStyle = color("--band");
    ink.save();
    ink.beginPath();
    ink.rect(LEFT, TOP, wide - LEFT - RIGHT, high - TOP - BOTTOM);
    ink.clip();
    for (const [time, long] of data.stalls) ink.fillRect(x(time), TOP, Math.max(1, x(time + long) - x(time)), high - TOP - BOTTOM);
    ink.restore();
    axes(ink);
    ink.save();
    ink.beginPath();
    ink.rect(LEFT, TOP, wide - LEFT - RIGHT, high - TOP - BOTTOM);
    ink.clip();
    if (!hidden.has(`k${ACKED}`)) {
      ink.strokeStyle = color("--soft");
      ink.lineWidth = 1;
      ink.beginPath();
      let last = 0;
      ink.moveTo(x(0), y(0));
      for (const m of marks) if (m.k === ACKED) {
        ink.lineTo(x(m.t0), y(last));
        ink.lineTo(x(m.t1), y(m.b1));
        last = m.b1;
      }
      ink.stroke();
    }
    for (const kind of [NEW, AGAIN, REINJECTED, RESENT, MISSING]) for (const m of marks) {
      if (m.k !== kind || !isShown(m) || m.t1 < view.t0 || m.t0 > view.t1 || m.b1 < view.b0 || m.b0 > view.b1) continue;
      mark(ink, m);
    }
    signs(ink);
    ink.restore();
    ink.strokeStyle = color("--rule");
    ink.strokeRect(LEFT, TOP, wide - LEFT - RIGHT, high - TOP - BOTTOM);
  }

  function mark(ink, m) {
    const [x0, x1, y0, y1] = [x(m.t0), x(m.t1), y(m.b0), y(m.b1)];
    ink.strokeStyle = ink.fillStyle = m.k === AGAIN || m.k === MISSING ? color("--bad") : color(`--k${m.s % 6}`);
    ink.lineWidth = 2;
    ink.beginPath();
    if (m.k === NEW) {
      ink.moveTo(x0 - 0.5, y0);
      ink.lineTo(Math.max(x1, x0 + 0.5), Math.min(y1, y0 - 1));
      ink.stroke();
    } else if (m.k === MISSING) {
      ink.rect(x0 - 3, Math.min(y1, y0 - 2), 6, Math.max(2, y0 - y1));
      ink.fill();
    } else if (m.k === AGAIN) {
      ink.lineWidth = 1.5;
      for (const side of [-3, 3]) {
        ink.moveTo(x0 - 3, (y0 + y1) / 2 - side);
        ink.lineTo(x0 + 3, (y0 + y1) / 2 + side);
      }
      ink.stroke();
    } else {
      // A triangle for what came over another subflow, a square for the same one again.
      const cy = (y0 + y1) / 2;
      if (m.k === REINJECTED) {
        ink.moveTo(x0, cy - 4.5);
        ink.lineTo(x0 + 4, cy + 3.5);
        ink.lineTo(x0 - 4, cy + 3.5);
        ink.closePath();
      } else {
        ink.rect(x0 - 3, cy - 3, 6, 6);
      }
      ink.fillStyle = color("--page");
      ink.fill();
      ink.lineWidth = 1.5;
      ink.stroke();
    }
  }

  // Zooms by a factor about a place of the canvas, in time, bytes or both.
  function zoom(factor, px, py, ways) {
    const t = view.t0 + (px - LEFT) / (wide - LEFT - RIGHT) * (view.t1 - view.t0);
    const b = view.b0 + (high - BOTTOM - py) / (high - TOP - BOTTOM) * (view.b1 - view.b0);
    if (ways.includes("t") && (view.t1 - view.t0) * factor > 10) {
      [view.t0, view.t1] = [t + (view.t0 - t) * factor, t + (view.t1 - t) * factor];
    }
    if (ways.includes("b") && (view.b1 - view.b0) * factor > 100) {
      [view.b0, view.b1] = [b + (view.b0 - b) * factor, b + (view.b1 - b) * factor];
    }
    if (view.t1 - view.t0 > 2 * (whole.t1 - whole.t0) || view.b1 - view.b0 > 2 * (whole.b1 - whole.b0)) view = { ...whole };
    draw();
  }
  function move(dx, dy) {
    const dt = dx / (wide - LEFT - RIGHT) * (view.t1 - view.t0), db = dy / (high - TOP - BOTTOM) * (view.b1 - view.b0);
    view = { t0: view.t0 - dt, t1: view.t1 - dt, b0: view.b0 + db, b1: view.b1 + db };
    draw();
  }
  const middle = (factor) => zoom(factor, (wide + LEFT) / 2, high / 2, "tb");
  const reset = () => { view = { ...whole }; draw(); };

  function tell(event) {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    let best = null, near = 15;
    for (const m of marks) {
      if (!isShown(m)) continue;
      const dx = Math.max(x(m.t0) - px, 0, px - x(m.t1)), dy = Math.max(y(m.b1) - py, 0, py - y(m.b0));
      const far = Math.hypot(dx, dy);
      if (far < near) [best, near] = [m, far];
    }
    at.textContent = !best ? "" :
      `${seconds(best.t0)}${best.t1 > best.t0 ? ` to ${seconds(best.t1)}` : ""}: bytes ${best.b0} to ${best.b1}, ` +
      KINDS[best.k] + (best.k === ACKED || best.k === MISSING ? "" : ` on subflow ${best.s}`);
  }

  let held = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const ways = event.shiftKey ? "b" : event.altKey ? "t" : "tb";
    zoom(Math.exp((event.deltaY || event.deltaX) / 400), event.offsetX, event.offsetY, ways);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { held = event; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      move(event.clientX - held.clientX, event.clientY - held.clientY);
      held = event;
    } else {
      tell(event);
    }
  });
  canvas.addEventListener("dblclick", reset);
  const keys = {
    "+": () => middle(0.7), "-": () => middle(1.4), 0: reset, ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0),
    ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
  };
  canvas.addEventListener("keydown", (event) => {
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  for (const button of figure.querySelectorAll("button")) button.addEventListener("click", keys[button.value]);
  for (const box of figure.querySelectorAll("input")) {
    box.addEventListener("change", () => { hidden[box.checked ? "delete" : "add"](box.value); draw(); });
  }
  draw();
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
document.querySelectorAll("figure").forEach(plot);
