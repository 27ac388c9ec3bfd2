// The assignment part of tests/contract/cases.json, and shares over a million draws.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { assign, draw, murmur3, numbers } from "../../src/kanab/static/kanab.js";

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const { assignment } = read("../../tests/contract/cases.json");
// The plan's public part, as the collector serves it; KANAB_CONFIG is written by tests/contract/test_node.py.
const { experiments } = JSON.parse(readFileSync(process.env.KANAB_CONFIG, "utf8"));

const DRAWS = 1_000_000;
/** The 1 − 1e-6 quantiles of χ² with 1 to 8 degrees of freedom (scipy.stats.chi2.isf). */
const LIMITS = [23.93, 27.63, 30.66, 33.38, 35.89, 38.26, 40.52, 42.7];

/** @param {Map<string, number>} seen @param {[string, number][]} expected parts of all draws */
const fits = (seen, expected) => {
  const total = [...seen.values()].reduce((a, b) => a + b, 0);
  const whole = expected.reduce((sum, [, share]) => sum + share, 0);
  let chi2 = 0;
  for (const [name, share] of expected) {
    const mean = (total * share) / whole;
    chi2 += ((seen.get(name) ?? 0) - mean) ** 2 / mean;
  }
  assert.ok(chi2 < LIMITS[expected.length - 2], `χ² = ${chi2} with ${expected.length - 1} degrees of freedom`);
  return chi2;
};
// Real random numbers, fetched by the thousand: fetching them one by one takes most of the time of a million draws.
const fetchRandom = crypto.getRandomValues.bind(crypto);
const pool = new Uint32Array(16_384);
let used = pool.length;
crypto.getRandomValues = (array) => {
  if (used + array.length > pool.length) {
    fetchRandom(pool);
    used = 0;
  }
  array.set(pool.subarray(used, (used += array.length)));
  return array;
};
const counted = () => {
  const seen = new Map();
  return { seen, add: (name) => seen.set(name, (seen.get(name) ?? 0) + 1) };
};

test("version 1 of the cases", () => assert.equal(assignment.version, 1));

test("hashes are murmur3's", () => {
  for (const [text, hash] of assignment.hashes) assert.equal(murmur3(text), hash, text);
});

test("draws go by shares, to the last bit", () => {
  for (const [arms, number, arm] of assignment.draws) assert.equal(draw(arms, number), arm, `${arms} at ${number}`);
});

test("everybody gets the same arms as in every language", () => {
  for (const [id, arms] of assignment.people) assert.deepEqual({ ...assign(experiments, numbers(id)) }, arms, id);
});

test("what is known stays, and excludes what comes later", () => {
  const known = { prices: "low" };
  for (let draws = 0; draws < 200; draws++) {
    const arms = assign(experiments, numbers(), known);
    assert.equal(arms.prices, "low");
    assert.deepEqual([arms.checkout, arms.shipping], [null, null]);
    assert.notEqual(assign(experiments, numbers(), { prices: null, shipping: null }).checkout, null);
  }
});

for (const [name, number] of /** @type {const} */ ([
  ["drawn at random", () => numbers()],
  ["hashed", (person) => numbers("person-" + person)],
])) {
  test(`shares of a million draws, ${name}, pass a χ²`, () => {
    const arms = [["A", 0.5], ["B", 3], ["C", 1.5]];
    const [one, both] = [counted(), counted()];
    for (let person = 0; person < DRAWS; person++) {
      const at = number(person);
      const first = draw(arms, at("first:arm"));
      one.add(first);
      if (person % 5 === 0) both.add(first + draw(arms, at("second:arm")));
    }
    fits(one.seen, arms);
    const pairs = arms.flatMap(([a, x]) => arms.map(([b, y]) => [a + b, x * y]));
    fits(both.seen, pairs); // and two experiments are independent
  });
}

test("exclusion and holdouts take the parts of people that they should", () => {
  const seen = counted();
  for (let person = 0; person < 100_000; person++) {
    const arms = assign(experiments, numbers("person-" + person));
    assert.ok(arms.prices === null || (arms.checkout === null && arms.shipping === null));
    seen.add(["checkout", "prices", "shipping"].filter((name) => arms[name] !== null).join());
  }
  // checkout excludes prices, and prices shipping. Of the six orders of three numbers prices comes first in two, last in
  // two (then both others take the person), and between them in two. Shipping holds a fifth out.
  fits(seen.seen, [
    ["prices", 2 / 6],
    ["checkout,shipping", (2 / 6) * 0.8],
    ["checkout", (2 / 6) * 0.2 + 1 / 6],
    ["shipping", (1 / 6) * 0.8],
    ["", (1 / 6) * 0.2],
  ]);
});
