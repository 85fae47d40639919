/**
 * Makes what is used of the sources: node tools/build.mjs
 *
 * Into src/croupier/service/shuffler/page: croupier-client.js (the whole client, its cryptography included, one ES module), croupier-node.js
 * (Node's store), page.js with index.html and style.css (the page to take part with), and SHA256SUMS. With --package also into dist,
 * for npm, with types. With --to FOLDER into that folder instead. The same sources and versions make the same bytes.
 */
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { execFileSync } from "node:child_process";
import { build } from "esbuild";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const given = process.argv.indexOf("--to");
const served = given > 0 ? process.argv[given + 1] : join(here, "../../src/croupier/service/shuffler/page");
const common = { bundle: true, format: "esm", target: "es2022", minify: true, legalComments: "eof", charset: "ascii", logLevel: "error" };

mkdirSync(served, { recursive: true });
await build({ ...common, entryPoints: [join(here, "src/index.ts")], outfile: join(served, "croupier-client.js") });
await build({ ...common, entryPoints: [join(here, "src/node.ts")], outfile: join(served, "croupier-node.js"), platform: "node" });
await build({
  ...common,
  entryPoints: [join(here, "page/page.ts")],
  outfile: join(served, "page.js"),
  plugins: [{ name: "beside", setup: (made) => made.onResolve({ filter: /src\/index\.ts$/ }, () => ({ path: "./croupier-client.js", external: true })) }],
});
const files = ["croupier-client.js", "croupier-node.js", "page.js"];
for (const name of ["index.html", "style.css"]) {
  cpSync(join(here, "page", name), join(served, name));
  files.push(name);
}
const sums = files.sort().map((name) => `${createHash("sha256").update(readFileSync(join(served, name))).digest("hex")}  ${name}\n`);
writeFileSync(join(served, "SHA256SUMS"), sums.join(""));

if (process.argv.includes("--package")) {
  const dist = join(here, "dist");
  rmSync(dist, { recursive: true, force: true }); // nothing of an earlier version
  mkdirSync(dist);
  cpSync(join(here, "../../LICENSE"), join(dist, "LICENSE"));
  for (const [from, to] of [["croupier-client.js", "croupier-client.js"], ["croupier-node.js", "node.js"]]) {
    cpSync(join(served, from), join(dist, to));
  }
  execFileSync(process.execPath, [join(here, "node_modules/typescript/bin/tsc")], { cwd: here, stdio: "inherit" });
}
