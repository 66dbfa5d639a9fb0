// Validates values by schemas with ajv, which most editors and JavaScript tools use.
// Reads {schemas: {NAME: SCHEMA}, values: [[NAME, VALUE], ...]} and writes {said, verdicts}: what it
// warned of, and whether it takes each value.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { default: Ajv } = createRequire(process.argv[2] + '/')('ajv');
const { schemas, values } = JSON.parse(readFileSync(0, 'utf8'));
const said = [];
const note = (...words) => said.push(words.join(' '));
const ajv = new Ajv({ logger: { log: note, warn: note, error: note } });
const validators = {};
for (const [name, schema] of Object.entries(schemas)) {
  try {
    validators[name] = ajv.compile(schema);
  } catch (error) {
    note(`${name}: ${error.message}`);
  }
}
process.stdout.write(JSON.stringify({
  said,
  verdicts: values.map(([name, value]) => validators[name]?.(value) ?? null),
}));
