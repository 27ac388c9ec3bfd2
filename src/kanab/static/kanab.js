// @ts-check
/**
 * Kanab in the browser: draws arms, remembers them, and sends counts and running totals.
 *
 *   import { init } from "/kanab.js";
 *   const kanab = await init({ url: "/" });
 *   if (kanab.variant("checkout") === "B") showTheNewCheckout();
 *   kanab.enroll("checkout", { tier: 3 });
 *   kanab.track("minutes", 4);
 *
 * What is remembered on the device: the arms, the classes that somebody is counted in, running totals, and posts
 * that are not answered yet. What leaves is text that you can read in the network tab, and nothing else:
 * no id, no cookie, no referrer, no address of a page. The format: docs/how-to/messages.md.
 */

/** @typedef {{ arms: [string, number][], control: string, covariates: string[], salt?: string, holdout?: number,
 *    exclude_with?: string[], metrics?: string[] }} Experiment   an experiment as the collector's config tells it */
/** @typedef {{ format: string, cohorts: { days: number, window: number } | null, nonce_life: number,
 *    covariates: Record<string, string[]>, experiments: Record<string, Experiment>, pairs: [string, string][],
 *    metrics: Record<string, { bounds: [number, number], scale: number, missing?: string }>,
 *    ratios: [string, string][], most_pairs: number, answers?: boolean, epoch?: string, vouch?: boolean }} Config   the public
 *    part of a plan; answers: the collector signs what it says of posts; epoch: of its store, if it is not the first; vouch:
 *    posts need vouchers */
/** @typedef {Record<string, number>} Totals   running totals by metric; no entry: none yet */
/** @typedef {{ over?: 1, heads: string[], end: number | null, epoch?: string, totals: Totals, sent: Totals, enrolled?: 1,
 *    frozen?: string[], post?: string, then: Totals, at: number, alone?: 1 }} Unit
 *    Somebody's part in an experiment or a pair: the classes they are in, how long they are measured, the epoch in which they
 *    began, totals so far and as acknowledged, and the post that is not answered yet with the totals that hold once it is. Units
 *    that are enrolled at one moment share it; if it is refused, each goes alone. */
/** @typedef {{ arms: Record<string, string | null>, units: Record<string, Unit>, pairs?: string[], spent: string[] }} State
 *    nothing of an experiment stays that is not in the plan any more and whose window is over; spent: vouchers, while they live */
/** @typedef {["enroll", string, Record<string, string>, number] | ["track", string, number, number]} Step */
/** @typedef {string | number | boolean | null | undefined} Level */
/** @typedef {{ url?: string, storage?: "local" | "session" | "none", id?: string, development?: boolean,
 *    vouch?: () => string[] | Promise<string[]>, experiments?: string[] }} Options
 *    url: where the collector is. storage: where arms and totals are remembered; "none" shows arms and sends
 *    nothing. id: a stable id to draw arms by; it is hashed here and never sent. development: say mistakes aloud.
 *    vouch: gives nonces that the site's server minted, one for each post (docs/how-to/vouchers.md): at once, and when none is left.
 *    experiments: those of this page; the config is about these, and what is remembered of others stays. */
/** @typedef {{ ready: boolean, variant: (experiment: string) => string | null,
 *    enroll: (experiment: string, levels?: Record<string, Level>) => void,
 *    track: (metric: string, amount?: number) => void,
 *    flush: () => Promise<void>, optOut: () => Promise<void> }} Client */

// Numbers first: the minifier writes out those that stand before everything else.
const HOUR = 36e5;
const DAY = 24 * HOUR;
const WHOLE = 2 ** 32;
const DELAY = 1000; // what happens within a second travels in one post
const SETTLE = 100; // a lock goes on only when other tabs see what was written: localStorage has no order with locks
const PATIENCE = 1e4; // an answer that takes longer counts as none
const TERM = 3e4; // so long a tab that vanished stops the others, where there are no Web Locks
const MOST_LINES = 100;
const MOST_BYTES = 16384;

const { entries, fromEntries, keys, values } = Object;
const { floor, imul, min, random } = Math;
/** @type {unknown[]} */
const FINAL = [204, 400, 403, 410, 413]; // these answers will be the same next time

/** @param {any} part */
const record = (part) => Object(part) === part;
/** Return a record that inherits nothing: names may be "constructor", and prototypes frozen or polluted. @param {any} [from] */
const bare = (from) => /** @type {any} */ ({ __proto__: null, ...from });
/** @param {string} text */
const parse = (text) => JSON.parse(text, (_, part) => (record(part) && !Array.isArray(part) ? bare(part) : part));
/** @param {number} ms @returns {Promise<void>} */
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
/** Wait for something, but not for long; undefined: it took longer. @template Result @param {Promise<Result>} promise */
const inTime = (promise) => Promise.race([promise, sleep(PATIENCE)]);

// ── who gets which arm (docs/how-to/assignment.md) ────────────────────────────────────────────

/** Return the murmur3 hash (x86, 32 bits, seed 0) of a text. @param {string} text */
export const murmur3 = (text) => {
  const bytes = new TextEncoder().encode(text);
  const { length } = bytes;
  let hash = 0;
  for (let at = 0; at < length; at += 4) {
    const block = imul(bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24), 0xcc9e2d51);
    hash ^= imul((block << 15) | (block >>> 17), 0x1b873593);
    if (at + 4 <= length) hash = imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64;
  }
  hash ^= length;
  hash = imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
};

/** Return the arm at a number below 2^32, by shares. @param {[string, number][]} arms @param {number} number */
export const draw = (arms, number) => {
  const point = (number / WHOLE) * arms.reduce((sum, [, share]) => sum + share, 0);
  let reached = 0;
  return (arms.find(([, share]) => point < (reached += share)) ?? /** @type {[string, number]} */ (arms.at(-1)))[0];
};

/** Draw a number below 2^32. */
const chance = () => crypto.getRandomValues(new Uint32Array(1))[0];

/** Return the numbers that decide: hashed with an id, else drawn. @param {string} [id]
 * @returns {(key: string) => number} */
export const numbers = (id) => {
  /** @type {Record<string, number>} */
  const drawn = {};
  return (key) => (id ? murmur3(key + ":" + id) : (drawn[key] ??= chance()));
};

/**
 * Return arms in all experiments; null: not in it. Arms that are known stay, also those of other experiments.
 * @param {Record<string, Experiment>} experiments @param {(key: string) => number} number
 * @param {Record<string, string | null>} [known]
 */
export const assign = (experiments, number, known = bare()) => {
  /** @param {string} name @param {string} purpose */
  const at = (name, purpose) => number((experiments[name].salt ?? name) + ":" + purpose);
  return fromEntries([
    ...entries(experiments).map(([name, { arms, holdout = 0, exclude_with = [] }]) => [
      name,
      at(name, "holdout") / WHOLE >= holdout &&
      exclude_with.every((other) =>
        other in known ? known[other] == null : at(name, "group") < at(other, "group"),
      )
        ? draw(arms, at(name, "arm"))
        : null,
    ]),
    ...entries(known),
  ]);
};

// ── how it is written (docs/how-to/messages.md) ───────────────────────────────────────────────

const encode = encodeURIComponent;
/** Return names as posts write them, with something between. @param {string[]} names @param {string} [between] */
const join = (names, between = "/") => names.map(encode).join(between);

/** Return the cohort at a moment: its label, and when its people have been measured. @param {Config} config
 * @param {number} now @returns {[string, number?]} */
const cohort = ({ cohorts }, now) => {
  if (!cohorts) return [""];
  const { days, window } = cohorts;
  const offset = days === 7 ? 4 : 0; // 1970-01-05 was a Monday
  const first = floor((floor(now / DAY) - offset) / days) * days + offset;
  /** @param {number} day */
  const date = (day) => new Date(day * DAY).toISOString();
  let label = date(first).slice(0, 10);
  if (offset) {
    const year = date(first + 3).slice(0, 4); // a week belongs to the year of its Thursday
    const week = floor((first + 3 - Date.parse(year) / DAY) / 7) + 1;
    label = year + "-W" + `${week}`.padStart(2, "0");
  }
  return ["@" + label, (first + days) * DAY + window * HOUR];
};

/** Make a nonce: the hour, and random digits. */
const nonce = () => [Date.now() / HOUR, chance(), chance(), chance()].map(hex).join("");
/** Return eight hex digits. @param {number} part */
const hex = (part) => floor(part).toString(16).padStart(8, "0");

/** Return a total as it is sent: within bounds, on the metric's grid. @param {Config["metrics"][string]} metric @param {number} [total] */
const value = ({ bounds: [low, high], scale, missing }, total) => {
  if (total == null && missing) return null;
  return floor(min(Math.max(total ?? 0, low), high) * scale + 0.5) / scale;
};

/** @param {string[]} body */
const fits = (body) => body.length <= MOST_LINES && body.join().length <= MOST_BYTES - 60;

// ── the client ────────────────────────────────────────────────────────────────────────────────

/**
 * Start a client of the collector at ``url``. It never throws, and never delays the page.
 * @param {Options} [options] @returns {Promise<Client>}
 */
export const init = async (options) => {
  let KEY = "kanab/1 ";
  /** @type {string | undefined} */ let id;
  /** @type {boolean | undefined} */ let development;
  /** @type {any} */ let base; // the collector's address
  /** @type {any} */ let mode; // of storage
  /** @type {any} */ let vouch;
  /** @type {string[] | undefined} */ let named; // what the config is about, if not everything
  /** @type {string[]} */ const vouchers = [];
  /** @type {Config} */ let config;
  /** @type {Record<string, string | null>} */ let arms = {};
  /** @type {State} */ let state;
  /** @type {Storage | undefined} */ let storage;
  let off = true; // nothing is remembered or sent
  /** @type {unknown} */ let held; // this tab holds the lock: the state in memory is the newest
  /** @type {unknown} */ let dirty; // something has happened that is not sent yet
  /** @type {unknown} */ let hurry; // send at once
  /** @type {unknown} */ let failed; // send again later
  let wait = 0;
  let count = 1e6;
  /** @type {((done: void) => void) | undefined} */ let go;
  /** @type {(() => void) | undefined} */ let first; // what the first run begins with
  /** @type {Promise<void> | undefined} */ let running;
  /** @type {Record<string, Promise<number | void>>} */ const underWay = bare();
  /** @type {Record<string, unknown>} */ const joint = bare(); // posts of several units, made here and never without an answer

  /** Say it to developers: docs/how-to/browser.md lists what they may hear. @param {unknown} problem */
  const warn = (problem) => void (development && console.warn("kanab:", problem));
  /** Run something that the page or the browser may break; null: it did. @template Result @param {() => Result} run */
  const attempt = (run) => {
    try {
      return run();
    } catch (problem) {
      warn(problem);
      return null;
    }
  };

  // ── what is remembered ──

  /** Write; return whether that was possible. @param {string} key @param {unknown} content */
  const write = (key, content) => attempt(() => {
    storage?.setItem(key, JSON.stringify(content));
    return storage;
  });
  /** Return what is written there; null: nothing, or nothing of ours. @param {string} key */
  const read = (key) => attempt(() => parse(storage?.getItem(key) ?? "null"));
  const save = () => !off && write(KEY, state);
  /** Return whether a unit's experiments are in the plan still, as far as that is known. @param {string} key */
  const runs = (key) => named || key.split("/").every((part) => keys(config.experiments).map(encode).includes(part));
  /** Return whether a moment is longer ago than a post may be sent again. @param {number} moment */
  const isPast = (moment) => moment + config.nonce_life * HOUR < Date.now();
  const load = () => {
    const stored = read(KEY);
    state = { arms: bare(stored?.arms ?? arms), spent: stored?.spent ?? [], units: bare(stored?.units), pairs: stored?.pairs };
    for (const [key, unit] of entries(state.units)) {
      const whole = Array.isArray(unit?.heads) && record(unit.totals) && record(unit.sent);
      if (!whole || (unit.end && isPast(unit.end))) close((state.units[key] = bare()));
      if (state.units[key].over && !runs(key)) delete state.units[key]; // what has ended is not kept
    }
  };
  const steps = () => keys(storage ?? {}).filter((key) => key.startsWith(KEY + " ")).sort();
  const lease = () => KEY + ".lease"; // without Web Locks: who may write, and until when
  /** @param {string} mode @returns {Storage} */
  const storageOf = (mode) => /** @type {any} */ (self)[mode + "Storage"];
  const wipe = async () => {
    for (const mode of ["local", "session"])
      attempt(() => {
        storage = storageOf(mode);
        for (const key of [KEY, lease(), ...steps()]) storage.removeItem(key);
      });
    storage = undefined;
  };
  /** Count nothing more, and forget what was remembered of it. @param {any} unit */
  const close = (unit) => {
    for (const name in unit) delete unit[name];
    unit.over = 1;
  };
  /** Close what another epoch of the store began: what of it counted, nobody knows. @param {string} [epoch] */
  const closeAllBut = (epoch) => values(state.units).map((unit) => unit.epoch !== epoch && close(unit));

  /** Run while no other tab does. @type {(run: () => Promise<void>) => Promise<void>} */
  const lock = async (run) => {
    if (navigator.locks) return navigator.locks.request(KEY, run);
    const tab = chance(); // a lease: written, and read again when every tab must have seen it
    for (;;) {
      const held = read(lease());
      const left = held?.[1] - Date.now();
      if (!(left > 0 && left <= TERM)) {
        if (!write(lease(), [tab, Date.now() + TERM])) return;
      } else if (held[0] === tab) break;
      await sleep(SETTLE + SETTLE * random());
    }
    const free = () => storage?.removeItem(lease());
    addEventListener("pagehide", free, { once: true });
    await run().finally(free);
  };

  // ── what happens ──

  /** Return whether a unit counts a metric: experiments keep those that they began with. @param {string} key @param {string} name */
  const counts = (key, name) =>
    key.split("/").every((part) => config.experiments[decodeURIComponent(part)]?.metrics?.includes(name) ?? true);

  /** @param {Step} step */
  const apply = ([verb, name, more, now]) => {
    const { units } = state;
    if (verb === "track") {
      const { bounds, scale } = config.metrics[name];
      const binary = `${[scale, bounds]}` === "1,0,1";
      for (const [key, { end, totals }] of entries(units))
        if (totals && now <= (end ?? now) && counts(key, name))
          totals[name] = binary ? +(more > 0) : (totals[name] ?? 0) + more;
      return;
    }
    const arm = (state.arms[name] ??= arms[name]); // the step may be another page's, and so may the experiment
    const own = encode(name);
    if (arm == null || units[own]) return;
    const [label, end] = cohort(config, now);
    /** @param {string} key @param {string[]} heads */
    const enter = (key, heads) => {
      units[key] = bare({ heads: heads.map((head) => head + label), end, epoch: config.epoch, totals: bare(), sent: bare() });
    };
    const head = ":" + encode(arm);
    enter(own, keys(more)[0] ? keys(more).map((each) => join([name, each]) + head + ":" + encode(more[each])) : [own + head]);
    for (const pair of config.pairs) {
      const key = join(pair);
      if (!pair.includes(name) || units[key] || !(state.pairs?.includes(key) ?? true)) continue;
      if (pair.every((each) => units[encode(each)]?.heads)) enter(key, [key + ":" + join(pair.map((each) => state.arms[each] ?? ""), ":")]);
    }
  };

  /** @param {Step} step */
  const note = (step) => {
    if (off) return;
    if (held) {
      apply(step);
      save();
    } else write(`${KEY} ${Date.now()}.${count++}.${chance()}`, step); // a key of its own: tabs cannot clash
    dirty = true;
    wake();
  };

  // ── what is sent ──

  /** Return what lines are about: metrics, and ratios of two. @returns {string[][]} */
  const figures = () => [...keys(config.metrics).map((name) => [name]), ...config.ratios];

  /** Return the lines that take a unit from the acknowledged totals to others. @param {Unit} unit @param {Totals} to */
  const lines = (unit, to) => {
    const { sent } = unit;
    const changes = unit.enrolled ? [] : [""];
    for (const names of figures()) {
      /** @param {Totals} totals */
      const at = (totals) => {
        const parts = names.map((name) => value(config.metrics[name], totals[name]));
        return parts.includes(null) ? "" : parts.join("/");
      };
      if (at(to) && at(to) !== at(sent)) changes.push(`:${join(names)}:${at(sent)}>${at(to)}`);
    }
    return unit.heads.flatMap((head) => changes.map((change) => head + change));
  };

  /** Return the totals of a unit's next post: all that changed, or as many as fit into it. @param {Unit} unit */
  const totalsThatFit = (unit) => {
    const { frozen = [], sent, totals } = unit;
    let to = sent;
    for (const name in totals) {
      if (figures().some((names) => names.includes(name) && names.some((each) => frozen.includes(each)))) continue;
      const more = bare({ ...to, [name]: totals[name] });
      if (fits(lines(unit, more))) to = more;
    }
    return to;
  };

  /** Return a voucher that lives and is not spent: a page that comes from a cache brings the same ones again. */
  const voucher = () => {
    const oldest = hex(Date.now() / HOUR - config.nonce_life);
    state.spent = state.spent.filter((each) => each > oldest);
    return vouchers.find((each) => each > oldest && !state.spent.includes(each));
  };
  const restock = () =>
    inTime(vouch?.()).then((/** @type {any} */ more = []) => {
      vouchers.push(...more);
      if (!voucher()) throw "no vouchers";
    }).finally(() => delete underWay[""]);

  /** Store the post to be sent next: it is on the device before it leaves. Return whether there is one, or would be
   * with a voucher. @param {Unit} unit */
  const prepare = (unit) => {
    const { end, epoch } = unit;
    if (unit.post && isPast(unit.at)) take(unit, 410);
    if (unit.over) return;
    if (unit.post) return save();
    /** @param {Unit} each */
    const waits = (each) => !(each.over || each.enrolled || each.alone || each.post);
    const group = values(state.units).filter( // enrolled at one moment: counted in all or in none
      (each) => each === unit || (waits(unit) && waits(each) && each.end === end && each.epoch === epoch),
    );
    let next = group.map(totalsThatFit);
    const body = () => group.flatMap((each, place) => lines(each, next[place]));
    if (!fits(body())) next = group.map(({ sent }) => sent); // totals later: a post holds a hundred enrollments
    while (!fits(body())) group.pop();
    if (!body()[0]) return;
    const serial = config.vouch ? voucher() : nonce();
    if (!serial) return true;
    if (config.vouch) state.spent.push(serial);
    const text = `kanab/1 ${serial}${epoch ? " " + epoch : ""}\n${body().join("\n")}\n`;
    joint[text] = group[1];
    group.map((each, place) => {
      each.post = text;
      each.then = next[place];
      each.at = Date.now();
    });
    return save();
  };

  /** Take the answer to a unit's post. Where nobody will know whether it counted, its totals freeze. @param {Unit} unit
   * @param {unknown} status */
  const take = (unit, status) => {
    const { post = "", then, sent, frozen = [] } = unit;
    if (status === 204) {
      unit.sent = then;
      unit.enrolled = 1;
    } else if (status === 400 && joint[post]) unit.alone = 1; // nothing was counted: none keeps out the others
    else if (unit.enrolled) unit.frozen = [...frozen, ...keys(then).filter((name) => then[name] !== sent[name])];
    else close(unit);
    delete unit.post;
    save();
  };

  // ── delivery ──

  /** Ask the collector; undefined: no answer. @param {string} path @param {RequestInit} [more] @returns {Promise<any>} */
  const ask = (path, more) =>
    inTime(fetch(new URL(path, base), { credentials: "omit", referrerPolicy: "no-referrer", ...more }));

  /** Return the collector's status. Somebody in between may have spoken: a proxy's page, or a hotel's. @param {Response} answer */
  const understand = ({ status, headers }) => {
    const answer = headers.get("kanab-answer");
    if (answer === "epoch") {
      closeAllBut((config.epoch = headers.get("kanab-epoch") || undefined));
      save();
    }
    if (answer || !config.answers) return status;
    throw "no answer " + status;
  };

  /** Send what is to be sent of a unit. Units that share a post, and calls for one unit, share its answer. @param {Unit} unit */
  const deliver = async (unit) => {
    try {
      while (!off && navigator.onLine !== false && prepare(unit)) {
        const body = unit.post ?? ""; // none: a voucher comes first
        const send = () => ask("v1/t", { method: "POST", body, keepalive: true }).then(understand).catch(warn);
        const status = await (underWay[body] ??= body ? send() : restock());
        delete underWay[body];
        if (unit.post !== body) continue; // another call has taken the answer, or the unit is closed
        if (!FINAL.includes(status)) {
          delete joint[body]; // who knows what was counted
          throw "no answer"; // the same bytes
        }
        take(unit, status);
      }
    } catch (problem) {
      failed = true; // or what is stored here is not ours: it stays silent
      warn(problem);
    }
  };
  const post = () => Promise.all(values(state.units).map(deliver));

  const more = () => dirty && !failed && !off;
  const run = async () => {
    if (off) return;
    try {
      load();
      first?.();
      first = undefined;
      held = true;
      do {
        for (const key of steps())
          attempt(() => {
            const step = read(key);
            storage?.removeItem(key);
            apply(step); // perhaps not ours, or of another plan
          });
        save();
        if (dirty && !hurry) await new Promise((done) => setTimeout((go = done), DELAY));
        hurry = dirty = failed = false;
        await post();
        await sleep(SETTLE); // after the last write, so that the next tab sees it
      } while (more());
    } finally {
      held = false;
    }
  };
  const wake = () =>
    (running ??= (async () => {
      do {
        failed = true; // unless it runs
        await lock(run).catch(warn); // a page that is being left gets none
      } while (more());
      running = undefined;
      wait = min(2 * wait || DELAY, 3e5);
      if (failed && !off) setTimeout(wake, wait * (0.5 + random()));
      else wait = 0;
    })());
  const rush = () => {
    hurry = true;
    go?.();
    if (held) post(); // at once: a page that is being left gets no other chance
    return wake();
  };

  // ── the beginning ──

  const begin = async () => {
    ({ url: base = "/", storage: mode = "local", id, development, vouch, experiments: named } = options ?? {});
    base = new URL(`${base}`.replace(/\/*$/, "/"), document.baseURI);
    KEY += base;
    if (/** @type {any} */ (navigator).globalPrivacyControl) return wipe();
    /** @type {Config} */
    const plan = parse(await (await ask("v1/config.json" + (named ? "?experiments=" + named.map(encode) : ""))).text());
    if (plan.format !== "kanab-config/1") throw "no config";
    config = plan;
    if (navigator.webdriver) return;
    const { experiments, most_pairs, pairs } = plan;
    if (mode !== "none")
      attempt(() => {
        const opened = storageOf(mode);
        const probe = KEY + ".";
        opened.setItem(probe, probe);
        if (opened.getItem(probe) !== probe) throw "no storage";
        opened.removeItem(probe);
        storage = opened;
      });
    const remember = () => {
      load();
      closeAllBut(plan.epoch);
      for (const [name, arm] of entries(state.arms)) {
        const known = experiments[name] ? arm === null || experiments[name].arms.some(([planned]) => planned === arm) : named;
        if (!known || (id && !state.units[encode(name)])) delete state.arms[name];
      }
      state.arms = arms = assign(experiments, numbers(id), state.arms);
      if (pairs.length > most_pairs && !state.pairs?.some(runs)) {
        const drawn = (state.pairs = pairs.filter((pair) => pair.every((name) => arms[name] !== null)).map((pair) => join(pair)));
        while (drawn.length > most_pairs) drawn.splice(chance() % drawn.length, 1);
      }
      return JSON.stringify(state) !== storage?.getItem(KEY);
    };
    const changed = remember();
    if (!storage) return;
    off = false;
    if (changed)
      await new Promise((ready) => {
        first = () => ready(remember());
        wake().then(ready); // who leaves at once is counted: a lock that comes later would not come any more
      });
    addEventListener("visibilitychange", () => document.hidden && rush());
    addEventListener("pagehide", rush);
    addEventListener("online", wake);
    addEventListener("storage", ({ key, newValue }) => {
      if ((key ?? KEY) === KEY && newValue === null) off = true; // opted out elsewhere
    });
    if (plan.vouch) underWay[""] = restock().catch(warn); // before it is needed: who leaves cannot wait
    if (keys(state.units)[0] || steps()[0]) rush();
  };

  const plan = await inTime(begin().catch((problem) => {
    off = true;
    warn(problem);
  }).then(() => config));

  /** Make a verb that never throws, of something in the plan. @param {"experiments" | "metrics"} kind
   * @param {(name: string, more: any, meant: any) => any} run @returns {(name: string, more?: any) => any} */
  const verb = (kind, run) => (name, more) => attempt(() => {
    if (!plan) throw "no config"; // everybody sees the control: an arm that comes later was not shown
    const meant = plan[kind][name];
    if (!meant) throw `no ${name} in ${kind}: ${keys(plan[kind])}`;
    return run(name, more, meant);
  });

  return {
    ready: !!plan,
    variant: verb("experiments", (name, _, { control }) => arms[name] ?? control),
    enroll: verb("experiments", (name, levels, { covariates }) => {
      /** @type {Record<string, string>} */
      const sent = bare();
      for (const covariate of covariates) {
        const declared = config.covariates[covariate];
        const level = `${levels?.[covariate] ?? ""}`;
        sent[covariate] = [level, level && "other"].find((each) => declared.includes(each)) ?? "";
        if (sent[covariate] !== level) warn(`no ${level} in ${covariate}: ${declared}`);
      }
      note(["enroll", name, sent, Date.now()]);
    }),
    track: verb("metrics", (name, amount = 1) => {
      if (!Number.isFinite(amount)) throw `no number for ${name}`;
      note(["track", name, amount, Date.now()]);
    }),
    flush: async () => {
      if (!off) await rush();
    },
    optOut: async () => {
      off = true;
      arms = {};
      go?.();
      dispatchEvent(new StorageEvent("storage", { key: KEY })); // to other clients of this page
      wipe();
      await lock(wipe).catch(warn); // once more, when no other tab is writing
    },
  };
};
