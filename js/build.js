// Builds the npm package from the module that the collector serves, and holds it to its size.
import { execFileSync } from "node:child_process";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const MOST = 4200; // bytes of the client, minified and gzipped

rmSync("dist", { recursive: true, force: true });
const outdir = "dist";
const made = { bundle: true, outdir, format: "esm", minify: true, target: "es2022", legalComments: "none" };
await build({ ...made, entryPoints: ["../src/kanab/static/kanab.js"] });
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
