"use strict";

const byId = (id) => document.getElementById(id);
const UPLOADS_AT_ONCE = 4;

for (const place of document.querySelectorAll(".origin")) place.textContent = location.origin;

const problemOf = (text, status) => {
  try {
    const { title, detail } = JSON.parse(text);
    return `${title}; ${detail}`;
  } catch {
    return `the service answered ${status}`;
  }
};

byId("create")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = byId("name").value;
  const answer = await fetch("/datasets", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name }),
  }).catch(() => null);
  if (answer?.ok) {
    location.href = `/browse/${name}`;
    return;
  }
  byId("message").textContent = answer ? problemOf(await answer.text(), answer.status) : "the service is out of reach";
  byId("message").hidden = false;
});

// Every dropped file with its path below the dropped folder.
async function* filesIn(entry, folder = "") {
  if (entry.isFile) {
    yield { path: folder + entry.name, file: await new Promise((found, lost) => entry.file(found, lost)) };
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((found, lost) => reader.readEntries(found, lost));
    if (!some.length) return;
    for (const inner of some) yield* filesIn(inner, `${folder}${entry.name}/`);
  }
}

const upload = byId("upload");
if (upload) {
  const isArchive = (path) => /\.(tar|tar\.gz|tgz|tar\.zst|zip)$/i.test(path);
  const quoted = (path) => path.split("/").map(encodeURIComponent).join("/");
  let sent = 0, total = 0, done = 0, failed = 0, count = 0;

  const show = () => {
    byId("under-way").hidden = false;
    byId("progress").value = total ? sent / total : 0;
    byId("status").textContent =
      `${done.toLocaleString("en")} of ${count.toLocaleString("en")} files` +
      (failed ? `, ${failed} failed` : "") + `, ${total ? Math.floor((100 * sent) / total) : 100} %`;
  };

  const put = ({ path, file }) =>
    new Promise((settle) => {
      const request = new XMLHttpRequest();
      const unpacked = byId("unpack").checked && isArchive(path);
      let before = 0;
      const advance = (now) => { sent += now - before; before = now; show(); };
      const fail = (why) => {
        failed += 1;
        advance(file.size);
        const line = document.createElement("li");
        line.textContent = `${path}: ${why}`;
        byId("failures").append(line);
        settle();
      };
      request.open("PUT", `/datasets/${upload.dataset.name}` + (unpacked ? "?unpack=true" : `/files/${quoted(path)}`));
      request.setRequestHeader("Content-Type", "application/octet-stream");
      if (unpacked) {
        const name = encodeURIComponent(path.split("/").pop());
        request.setRequestHeader("Content-Disposition", `attachment; filename*=UTF-8''${name}`);
      }
      request.upload.onprogress = (event) => advance(Math.min(event.loaded, file.size));
      request.onerror = () => fail("the connection broke; drop it again");
      request.onload = () => {
        if (request.status !== 200) return fail(problemOf(request.responseText, request.status));
        done += 1;
        advance(file.size);
        settle();
      };
      request.send(file);
    });

  const send = async (found) => {
    const waiting = [];
    for await (const one of found) { waiting.push(one); count += 1; total += one.file.size; show(); }
    const worker = async () => { while (waiting.length) await put(waiting.shift()); };
    await Promise.all(Array.from({ length: UPLOADS_AT_ONCE }, worker));
    if (!failed && done === count && count) location.reload();
  };

  const picked = (event) => {
    const files = [...event.target.files];
    send(files.map((file) => ({ path: file.webkitRelativePath || file.name, file })));
  };
  byId("files").addEventListener("change", picked);
  byId("folder").addEventListener("change", picked);

  upload.addEventListener("dragover", (event) => { event.preventDefault(); upload.classList.add("over"); });
  upload.addEventListener("dragleave", () => upload.classList.remove("over"));
  upload.addEventListener("drop", (event) => {
    event.preventDefault();
    upload.classList.remove("over");
    const loose = [...event.dataTransfer.files].map((file) => ({ path: file.name, file }));
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry());
    const whole = entries.every(Boolean); // without folders to walk, the files themselves have to do
    send((async function* () {
      if (!whole) yield* loose;
      else for (const entry of entries) yield* filesIn(entry);
    })());
  });
}
