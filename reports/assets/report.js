// Zoom, hover details and copying; the page is complete without any of them.
"use strict";
(() => {
  const svg = document.querySelector("svg.tl");
  if (svg) timeline(svg);
  for (const pre of document.querySelectorAll("pre.command")) copyButton(pre);

  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

  function copyButton(pre) {
    if (!navigator.clipboard) return;
    const text = pre.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.onclick = () => navigator.clipboard.writeText(text).then(() => {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1200);
    });
    pre.append(button);
  }

  function timeline(svg) {
    const scroll = svg.closest(".scroll");
    const tools = document.querySelector("#timeline .tools");
    const base = Number(svg.dataset.width), gutter = Number(svg.dataset.gutter), pad = 18;
    const from = Number(svg.dataset.from), to = Number(svg.dataset.to);
    const height = svg.viewBox.baseVal.height;
    const placed = [...svg.querySelectorAll("[data-a]")];
    const names = [...svg.querySelectorAll(".lane-name")];
    const bottom = Number(svg.querySelector(".tick line")?.getAttribute("y2") || height);
    let zoom = 1;

    tools.hidden = false;
    // Above everything else, since lanes pass beneath when the reader scrolls.
    for (const name of names) svg.append(name);

    const width = () => base * zoom;
    const x = (fraction) => gutter + fraction * (width() - gutter - pad);

    function layout() {
      svg.setAttribute("viewBox", `0 0 ${width()} ${height}`);
      svg.style.width = `${zoom * 100}%`;
      svg.style.minWidth = `${zoom * 860}px`;
      for (const el of placed) {
        const a = x(Number(el.dataset.a));
        if (el.dataset.b !== undefined) {
          const b = x(Number(el.dataset.b));
          if (el.tagName === "rect") {
            el.setAttribute("x", a);
            el.setAttribute("width", Math.max(b - a, 2));
          } else {
            el.setAttribute("x1", a);
            el.setAttribute("x2", b);
          }
        } else {
          el.setAttribute("transform", `translate(${a} ${el.dataset.y})`);
        }
      }
      for (const edge of svg.querySelectorAll(".full")) edge.setAttribute("x2", width());
      ticks();
      labels();
      stick();
    }

    function ticks() {
      for (const old of svg.querySelectorAll(".tick")) old.remove();
      const step = tickStep((to - from) / zoom);
      for (let at = Math.ceil(from / step) * step; at < to; at += step) {
        if (at <= from) continue;
        const g = document.createElementNS(svg.namespaceURI, "g");
        g.setAttribute("class", "tick");
        g.setAttribute("transform", `translate(${x((at - from) / (to - from))} 0)`);
        const line = document.createElementNS(svg.namespaceURI, "line");
        line.setAttribute("y1", 23);
        line.setAttribute("y2", bottom);
        const text = document.createElementNS(svg.namespaceURI, "text");
        text.setAttribute("y", 18);
        const digits = Math.max(0, Math.min(6, 9 - Math.floor(Math.log10(step))));
        text.textContent = `${(at / 1e9).toFixed(digits)} s`;
        g.append(line, text);
        svg.querySelector("defs").after(g);
      }
    }

    function tickStep(length) {
      for (let power = 1000; ; power *= 10)
        for (const factor of [1, 2, 5])
          if (length / (power * factor) <= 12) return power * factor;
    }

    // The same choice as was made for the picture without script: labels that
    // would cover another are left out, those of the story first.
    function labels() {
      for (const row of svg.querySelectorAll(".labels")) {
        const taken = [];
        const all = [...row.querySelectorAll(".label")];
        for (const rank of ["0", "1", "2"]) {
          for (const label of all) {
            const text = label.firstElementChild;
            if (text.dataset.rank !== rank) continue;
            const size = text.textContent.length * 6.3 + 5;
            const a = x(Number(label.dataset.a)) + Number(text.getAttribute("x"));
            const room = text.dataset.room === undefined ? Infinity : x(Number(text.dataset.room));
            const free = a + size <= room && taken.every(([p, q]) => a + size <= p || q <= a);
            label.classList.toggle("off", !free);
            if (free) taken.push([a, a + size]);
          }
        }
      }
    }

    function stick() {
      const scale = width() / svg.getBoundingClientRect().width;
      for (const name of names) name.setAttribute("transform", `translate(${scroll.scrollLeft * scale} 0)`);
    }

    function zoomTo(next, clientX) {
      next = Math.min(200, Math.max(1, next));
      const box = scroll.getBoundingClientRect();
      const at = (clientX ?? box.left + box.width / 2) - box.left;
      const before = (scroll.scrollLeft + at) / svg.getBoundingClientRect().width;
      zoom = next;
      layout();
      scroll.scrollLeft = before * svg.getBoundingClientRect().width - at;
      stick();
    }

    window.addEventListener("beforeprint", () => zoomTo(1));
    scroll.addEventListener("scroll", stick, { passive: true });
    scroll.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      zoomTo(zoom * Math.exp(-e.deltaY / 300), e.clientX);
    }, { passive: false });
    tools.addEventListener("click", (e) => {
      const how = e.target.dataset.zoom;
      if (how) zoomTo(how === "in" ? zoom * 2 : how === "out" ? zoom / 2 : 1);
    });
    scroll.addEventListener("keydown", (e) => {
      if (e.key === "+" || e.key === "=") zoomTo(zoom * 2);
      else if (e.key === "-") zoomTo(zoom / 2);
      else if (e.key === "0") zoomTo(1);
    });
    let drag = null;
    scroll.addEventListener("pointerdown", (e) => {
      if (e.pointerType === "mouse" && e.button === 0) drag = { x: e.clientX, left: scroll.scrollLeft, moved: false };
    });
    window.addEventListener("pointermove", (e) => {
      if (!drag) return;
      if (Math.abs(e.clientX - drag.x) > 4) drag.moved = true;
      if (drag.moved) scroll.scrollLeft = drag.left - (e.clientX - drag.x);
    });
    window.addEventListener("pointerup", () => { setTimeout(() => { drag = null; }, 0); });
    scroll.addEventListener("click", (e) => { if (drag?.moved) e.preventDefault(); }, true);
    scroll.addEventListener("dragstart", (e) => e.preventDefault());

    tips(svg);
    for (const el of document.querySelectorAll("[data-step]")) {
      const light = (on) => {
        for (const other of document.querySelectorAll(`[data-step="${el.dataset.step}"]`)) other.classList.toggle("lit", on);
      };
      el.addEventListener("pointerenter", () => light(true));
      el.addEventListener("pointerleave", () => light(false));
    }
    layout();
  }

  // Hover texts at once instead of after the browser's delay; without script
  // the same texts are the elements' titles.
  function tips(svg) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("role", "status");
    document.body.append(tip);
    const show = (text, x, y) => {
      tip.textContent = text;
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
      tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
    };
    for (const it of svg.querySelectorAll(".it")) {
      const title = it.querySelector("title");
      const text = title.textContent;
      it.setAttribute("aria-label", text);
      title.remove();
      it.addEventListener("pointermove", (e) => show(text, e.clientX, e.clientY));
      it.addEventListener("pointerleave", () => { tip.hidden = true; });
      it.addEventListener("focus", () => {
        const box = it.getBoundingClientRect();
        show(text, box.left, box.bottom);
      });
      it.addEventListener("blur", () => { tip.hidden = true; });
    }
    window.addEventListener("keydown", (e) => { if (e.key === "Escape") tip.hidden = true; });
  }
})();
