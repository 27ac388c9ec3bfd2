// How a site's server in node mints vouchers: the lines of docs/how-to/vouchers.md, held to tests/contract/cases.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const { vouchers } = JSON.parse(read("../../tests/contract/cases.json"));
const [, lines] = /```js\n(.*?)```/s.exec(read("../../docs/how-to/vouchers.md"));

test("vouchers are the same as in every language", async () => {
  for (const [key, head, voucher] of vouchers.minted) {
    process.env.KANAB_VOUCHER_KEY = key;
    const { vouch } = await import(`data:text/javascript,${encodeURIComponent(`${lines}\n// ${head}`)}`);
    assert.equal(vouch(head), voucher);
    assert.match(vouch(), /^[0-9a-f]{32}$/);
    assert.notEqual(vouch(), vouch());
  }
});
