// The editor of a prompt, and answers that come while one looks; both work without it.
(() => {
  "use strict";

  // Marks behind the text: what is filled in, and what decides the form of answers.
  for (const box of document.querySelectorAll(".code")) {
    const text = box.querySelector("textarea"), marks = box.querySelector(".code-marks");
    const kinds = [["variable", box.dataset.variables], ["expecting", "\\b[jJ][sS][oO][nN]\\b|<response>"]];
    const every = new RegExp(kinds.map(([, source]) => `(${source})`).join("|"), "gs");
    const draw = () => {
      const found = document.createDocumentFragment();
      // The front matter is not sent.
      const body = text.value.startsWith("---\n") ? text.value.indexOf("\n---\n", 3) + 1 : 0;
      // Which lines ask for the form of answers is told by the server.
      const asking = new Set(box.dataset.requests.split(" ").map(Number));
      const line = (index) => text.value.slice(0, index).split("\n").length;
      let at = 0;
      for (const match of text.value.matchAll(every)) {
        if (match.index < body) continue;
        if (match[1] === undefined && !asking.has(line(match.index))) continue;
        const mark = document.createElement("mark");
        mark.className = kinds[match.slice(1).findIndex((part) => part !== undefined)][0];
        mark.textContent = match[0];
        found.append(text.value.slice(at, match.index), mark);
        at = match.index + match[0].length;
      }
      found.append(text.value.slice(at), "\n");
      marks.replaceChildren(found);
      marks.scrollTop = text.scrollTop;
    };
    text.addEventListener("input", draw);
    box.addEventListener("told", draw);
    text.addEventListener("scroll", () => { marks.scrollTop = text.scrollTop; });
    new ResizeObserver(() => { marks.style.height = ""; draw(); }).observe(text);
    draw();
  }

  // Counts and cost, told by the server a moment after the last change.
  const form = document.querySelector("[data-editor]");
  if (form) {
    const told = (name) => form.querySelector(`[data-told="${name}"]`);
    const listed = (node, tag, texts, kind) => node.replaceChildren(...texts.flatMap((text) => {
      const each = document.createElement(tag);
      each.textContent = text;
      if (kind) each.className = kind;
      return [each, " "];
    }));
    const show = (found) => {
      told("characters").textContent = found.characters.toLocaleString("en");
      told("tokens").textContent = found.tokens.toLocaleString("en");
      told("exact").textContent = found.exact ? "" : " (estimated)";
      if (!found.problems.length) {
        listed(told("variables"), "code", found.variables, "variable");
        if (!found.variables.length) told("variables").textContent = "none ";
        told("expects").textContent = found.expects;
        listed(told("notes"), "li", found.notes, "");
        const box = form.querySelector(".code");
        box.dataset.requests = found.requests.join(" ");
        box.dispatchEvent(new Event("told"));
      }
      listed(told("problems"), "li", found.problems, "");
      told("cost").textContent = found.cost;
    };
    let timer = 0, sent = 0;
    const ask = async () => {
      const number = ++sent;
      const answer = await fetch(form.dataset.editor, {
        method: "POST", body: new URLSearchParams(new FormData(form)),
      });
      if (answer.ok && number === sent) show(await answer.json());
    };
    form.addEventListener("input", (event) => {
      if (event.target.name === "text") {
        told("characters").textContent = event.target.value.length.toLocaleString("en");
      }
      clearTimeout(timer);
      timer = setTimeout(() => ask().catch(() => {}), 700);
    });
    // What is written is not lost by a stray key.
    let kept = form.elements.text.value, leaving = false;
    form.addEventListener("submit", () => { leaving = true; });
    window.addEventListener("pageshow", () => { leaving = false; });
    window.addEventListener("beforeunload", (event) => {
      if (!leaving && form.elements.text.value !== kept) event.preventDefault();
    });
  }

  // A grid is filled as answers come.
  for (const grid of document.querySelectorAll("[data-try]")) {
    if (!grid.dataset.try || !window.EventSource) continue;
    const events = new EventSource(grid.dataset.try);
    events.addEventListener("cells", (event) => {
      const found = JSON.parse(event.data);
      for (const [number, markup] of Object.entries(found.cells)) {
        const cell = grid.querySelector(`[data-cell="${number}"]`);
        if (cell && !cell.querySelector(".tried")) cell.innerHTML = markup;
      }
      if (found.head) grid.querySelector("[data-try-head]").outerHTML = found.head;
      if (found.ended) events.close();
    });
  }
})();
