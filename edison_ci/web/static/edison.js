// What makes pages smoother; every page works without it.
(() => {
  "use strict";
  const body = document.body;
  const typing = (node) => node.matches("input, select, textarea, [contenteditable]");
  const go = (address) => { if (address) window.location.assign(address); };
  const follow = (rel) => go(document.querySelector(`a[rel="${rel}"]`)?.href);

  // Filters apply when they change; the button is for browsers without scripts.
  for (const form of document.querySelectorAll("form[data-auto]")) {
    form.addEventListener("change", (event) => {
      if (event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
    });
    // Addresses stay short: what is empty is not sent.
    form.addEventListener("submit", () => {
      for (const field of form.querySelectorAll("input[name], select[name]")) {
        if (!field.value) field.disabled = true;
      }
      // Nor is a choice of columns that is the usual one.
      for (const set of form.querySelectorAll("fieldset")) {
        const boxes = [...set.querySelectorAll("input[type=checkbox]")];
        set.disabled = boxes.every((box) => box.checked === box.hasAttribute("data-usual"));
      }
    });
  }
  window.addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form[data-auto] [disabled]")) field.disabled = false;
  });

  // A table that does not fit its box shows each row as a block. Its cells get the names of their
  // columns, and the roles that a table loses with its layout.
  const label = (table) => {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    const role = (found, word) => { for (const each of found) each.setAttribute("role", word); };
    role([table], "table");
    role(table.querySelectorAll("thead, tbody, tfoot"), "rowgroup");
    role(table.rows, "row");
    const taken = []; // rows that a cell above still covers, by column
    for (const row of table.rows) {
      let at = 0;
      for (const cell of row.cells) {
        while (taken[at] > 0) taken[at++] -= 1;
        const head = cell.matches("th");
        role([cell], !head ? "cell" : cell.closest("thead") ? "columnheader" : "rowheader");
        if (!head && names[at]) cell.dataset.label = names[at];
        for (const end = at + cell.colSpan; at < end; at += 1) taken[at] = cell.rowSpan - 1;
      }
      for (; at < taken.length; at += 1) taken[at] = Math.max(taken[at] - 1, 0);
    }
  };
  const inside = (box) => {
    const style = getComputedStyle(box);
    return box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  };
  const fit = () => {
    const tables = [...document.querySelectorAll("main table.data")];
    for (const table of tables) table.classList.remove("stacked");
    const wide = tables.filter((table) => table.offsetWidth > inside(table.parentElement) + 1);
    for (const table of wide) {
      if (!table.hasAttribute("role")) label(table);
      table.classList.add("stacked");
    }
  };
  fit();
  window.addEventListener("resize", fit);
  // What is folded has no width until it is opened.
  document.addEventListener("toggle", fit, true);

  // The search over everything: the same page as without scripts, in a dialog.
  const opener = document.querySelector("[data-search]");
  let dialog = null;
  const open = async () => {
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.className = "search-dialog";
      dialog.setAttribute("aria-label", "Search");
      const form = document.createElement("form");
      form.action = opener.href.split("?")[0];
      form.setAttribute("role", "search");
      const field = document.createElement("input");
      Object.assign(field, { type: "search", name: "q", autocomplete: "off", placeholder: "Experiments, prompts, cases, runs" });
      field.setAttribute("aria-label", "Search experiments, prompts, cases and runs");
      const results = document.createElement("div");
      results.setAttribute("aria-live", "polite");
      form.append(field);
      dialog.append(form, results);
      let asked = 0;
      const show = async () => {
        const mine = ++asked;
        const address = new URL(opener.href);
        address.searchParams.set("q", field.value);
        const text = field.value.trim() ? await (await fetch(address)).text() : "";
        if (mine !== asked) return; // a newer text was typed meanwhile
        const found = new DOMParser().parseFromString(text, "text/html").querySelector("#found");
        results.replaceChildren(...(found ? found.childNodes : []));
      };
      let waiting = 0;
      field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 120); });
      dialog.addEventListener("keydown", (event) => {
        const links = [...results.querySelectorAll("a")];
        const now = links.indexOf(document.activeElement);
        if (event.key === "ArrowDown" && links.length) links[Math.min(now + 1, links.length - 1)].focus();
        else if (event.key === "ArrowUp") (now > 0 ? links[now - 1] : field).focus();
        else return;
        event.preventDefault();
      });
      // A click beside the dialog closes it, as Escape does.
      dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
      body.append(dialog);
    }
    dialog.showModal();
    dialog.querySelector("input").select();
  };
  if (opener && window.HTMLDialogElement) {
    opener.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open();
    });
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (dialog?.open) dialog.close();
        else open();
      }
    });
  }

  // Rows by keyboard.
  const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.contains(document.activeElement));
    const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1);
    all[next].querySelector("a").focus();
  };
  // Keys that a page names itself: some press a button or follow a link, others only lead there, so
  // that a decision takes a second key.
  const named = (key) => {
    const quoted = CSS.escape(key);
    const pressed = document.querySelector(`[data-press="${quoted}"]`);
    if (pressed) { pressed.click(); return true; }
    const led = document.querySelector(`[data-focus="${quoted}"]`);
    if (led) { led.focus(); led.scrollIntoView({ block: "center" }); }
    return Boolean(led);
  };
  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && typing(event.target)) event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || dialog?.open) return;
    const key = event.key;
    if (before !== "g" && !event.repeat && key.length === 1 && named(key)) event.preventDefault();
    else if (before === "g" && key === "h") go(body.dataset.home);
    else if (key === "?") go(body.dataset.help);
    else if (key === "/") {
      const search = document.querySelector("input[type=search]");
      if (search) { search.focus(); event.preventDefault(); }
    }
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "n") follow("next");
    else if (key === "p") follow("prev");
    else if (key === "u") go(body.dataset.up);
    before = key;
  });

  // A running run is followed; when it ends, the page is reloaded.
  const make = (tag, values, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
    node.append(...inside);
    return node;
  };
  const list = (name, items) => {
    const target = document.querySelector(`[data-live-${name}]`);
    // What has the focus stays, so that a reader keeps their place in a list.
    if (target && items && !target.contains(document.activeElement)) target.replaceChildren(...items);
  };
  const show = (view) => {
    for (const [name, text] of Object.entries(view.texts)) {
      for (const node of document.querySelectorAll(`[data-live="${name}"]`)) {
        node.textContent = text || "none";
      }
    }
    list("bars", view.bars.map((bar) => make("li", {},
      make("span", { class: "name" }, bar.name), " ",
      make("progress", { max: bar.max, value: bar.value, "aria-label": bar.name }), " ",
      make("span", { class: "quiet small" }, bar.text))));
    list("phases", view.phases.map((phase) => make("li", phase.current ? { "aria-current": "step" } : {},
      make("span", {}, phase.name), " ", make("span", { class: "quiet small" }, phase.time))));
    list("newest", view.newest.length ? view.newest.map((each) => make("li", {},
      make("a", { class: "name", href: each.address }, each.case), " ",
      make("span", { class: "quiet small" }, make("span", { class: "name" }, each.model), `, ${each.word} ${each.score}`),
      make("p", { dir: "auto" }, each.text))) : null);
  };
  const following = document.querySelector("[data-follow]");
  if (following && window.EventSource) {
    const bar = following.querySelector("progress");
    const connection = following.querySelector("[data-connection]");
    const connected = (yes) => {
      connection.hidden = yes;
      connection.textContent = yes ? "" : "reconnecting";
    };
    let lost = 0;
    const connect = () => {
      const events = new EventSource(following.dataset.follow);
      events.addEventListener("open", () => { window.clearTimeout(lost); lost = 0; connected(true); });
      events.addEventListener("error", () => {
        // A stream also ends by itself now and then, and is open again after a second.
        if (!lost) lost = window.setTimeout(() => connected(false), 1500);
        // A browser does not try again by itself after an answer that is no stream.
        if (events.readyState === EventSource.CLOSED) window.setTimeout(connect, 2000);
      });
      events.addEventListener("progress", (event) => {
        const told = JSON.parse(event.data);
        show(told.view);
        bar.max = told.total;
        bar.value = told.done;
        if (!told.moving) {
          events.close();
          window.location.reload();
        }
      });
    };
    connect();
  }

  // What is being worked out is shown once it is.
  if (!following && body.dataset.again) {
    window.setTimeout(() => window.location.reload(), 1000 * Number(body.dataset.again));
  }

  // A page that belongs to a cell is unfolded in it.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-unfold]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const shown = link.parentElement.nextElementSibling;
    if (shown?.matches("[data-reply]")) {
      shown.hidden = !shown.hidden;
      link.setAttribute("aria-expanded", String(!shown.hidden));
      return;
    }
    const answer = await fetch(link.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = page.querySelector("[data-reply]");
    if (!answer.ok || !found) { go(link.href); return; }
    link.parentElement.after(document.importNode(found, true));
    link.setAttribute("aria-expanded", "true");
  });

  // Copying what a model wrote, as text.
  for (const box of document.querySelectorAll("[data-copy]")) {
    const text = box.querySelector("pre");
    const label = box.querySelector(".text-box-label");
    if (!text || !label || !navigator.clipboard) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    label.append(button);
  }
})();
