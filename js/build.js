// Builds the npm package from the module that the collector serves, and holds it to its size.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

const MOST = 4096; // bytes of the client, minified and gzipped

rmSync("dist", { recursive: true, force: true });
const outdir = "dist";
const made = { bundle: true, outdir, format: "esm", minify: true, target: "es2022", legalComments: "none" };
// terser's names repeat more, which takes gzip 4 % less than esbuild's
const compress = { passes: 3, loops: false, reduce_funcs: false };
const { code } = await minify(readFileSync("../src/kanab/static/kanab.js", "utf8"), { module: true, ecma: 2020, compress });
mkdirSync(outdir);
writeFileSync("dist/kanab.js", code);
await build({
  ...made,
  entryPoints: ["openfeature.js"],
  plugins: [{
    name: "beside",
    setup: ({ onResolve }) => onResolve({ filter: /kanab\.js$/ }, () => ({ path: "./kanab.js", external: true })),
  }],
});

execFileSync("node_modules/.bin/tsc", ["--project", "tsconfig.json"], { stdio: "inherit" });
copyFileSync("dist/types/src/kanab/static/kanab.d.ts", "dist/kanab.d.ts");
const types = readFileSync("dist/types/js/openfeature.d.ts", "utf8").replaceAll("../src/kanab/static/kanab.js", "./kanab.js");
rmSync("dist/types", { recursive: true });
writeFileSync("dist/openfeature.d.ts", types);

const size = gzipSync(readFileSync("dist/kanab.js"), { level: 9 }).length;
console.log(`kanab.js: ${size} bytes minified and gzipped, of at most ${MOST}`);
if (size > MOST) process.exit(1);
