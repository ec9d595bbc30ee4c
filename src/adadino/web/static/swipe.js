// The bar between the dates: mouse, touch, arrow keys. `after` is drawn to its right alone.

/* global ol */
export class Swipe {
  constructor(bar, sceneMap) {
    this.bar = bar;
    this.share = 0.5;
    this.whole = false; // `after` everywhere, whatever the bar says
    this.sceneMap = sceneMap;
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      event.preventDefault();
      bar.focus({ preventScroll: true });
    });
    bar.addEventListener("pointermove", (event) => {
      if (!bar.hasPointerCapture(event.pointerId)) return;
      const box = bar.parentElement.getBoundingClientRect();
      this.set((event.clientX - box.left) / box.width);
    });
    bar.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 0.1 : 0.02;
      const moves = {
        ArrowLeft: this.share - step, ArrowDown: this.share - step, ArrowRight: this.share + step,
        ArrowUp: this.share + step, Home: 0, End: 1, PageDown: this.share - 0.1, PageUp: this.share + 0.1,
      };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this.set(moves[event.key]);
    });
  }

  // To be called for every new `after` layer.
  attach(layer) {
    layer.on("prerender", (event) => {
      const context = event.context;
      const [width, height] = this.sceneMap.map.getSize();
      const x = this.whole ? 0 : width * this.share;
      const corners = [[x, 0], [width, 0], [width, height], [x, height]].map((at) => ol.render.getRenderPixel(event, at));
      context.save();
      context.beginPath();
      corners.forEach(([left, top], i) => (i ? context.lineTo(left, top) : context.moveTo(left, top)));
      context.closePath();
      context.clip();
    });
    layer.on("postrender", (event) => event.context.restore());
  }

  set(share) {
    this.share = Math.min(1, Math.max(0, share));
    this.bar.style.left = `${100 * this.share}%`;
    const shown = Math.round(100 * this.share);
    this.bar.setAttribute("aria-valuenow", shown);
    this.bar.setAttribute("aria-valuetext", `${shown} % before, ${100 - shown} % after`);
    this.sceneMap.map.render();
  }
}
