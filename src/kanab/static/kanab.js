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
 *    ratios: [string, string][], most_pairs: number, answers?: boolean, epoch?: string }} Config   the public part of a plan;
 *    answers: the collector signs what it says of posts; epoch: of its store, if it is not the first */
/** @typedef {Record<string, number>} Totals   running totals by metric; no entry: none yet */
/** @typedef {{ over?: 1, heads: string[], end: number | null, epoch?: string, totals: Totals, sent: Totals, enrolled?: 1,
 *    frozen?: string[], post?: string, then?: Totals, at?: number, alone?: 1 }} Unit
 *    Somebody's part in an experiment or a pair: the classes they are in, how long they are measured, the epoch in which they
 *    began, totals so far and as acknowledged, and the post that is not answered yet with the totals that hold once it is. Units
 *    that are enrolled at one moment share it; if it is refused, each goes alone. */
/** @typedef {{ arms: Record<string, string | null>, units: Record<string, Unit>, pairs?: string[] }} State */
/** @typedef {["enroll", string, Record<string, string>, number] | ["track", string, number, number]} Step */
/** @typedef {string | number | boolean | null | undefined} Level */
/** @typedef {{ url?: string, storage?: "local" | "session" | "none", id?: string, development?: boolean }} Options
 *    url: where the collector is. storage: where arms and totals are remembered; "none" shows arms and sends
 *    nothing. id: a stable id to draw arms by; it is hashed here and never sent. development: say mistakes aloud. */
/** @typedef {{ ready: boolean, variant: (experiment: string) => string | null,
 *    enroll: (experiment: string, levels?: Record<string, Level>) => void,
 *    track: (metric: string, amount?: number) => void,
 *    flush: () => Promise<void>, optOut: () => Promise<void> }} Client */

const { assign: put, create, entries, fromEntries, hasOwn, keys, values } = Object;
const { isArray } = Array;
const HOUR = 36e5;
const DAY = 24 * HOUR;
const WHOLE = 2 ** 32;
const DELAY = 1000; // what happens within a second travels in one post
const SETTLE = 100; // a lock goes on only when other tabs see what was written: localStorage has no order with locks
const PATIENCE = 1e4; // an answer that takes longer counts as none
const LEASE = ".lease"; // without Web Locks: who may write, and until when
const TERM = 3e4; // so long a tab that vanished stops the others
const MOST_LINES = 100;
const MOST_BYTES = 16384;
const FINAL = [400, 403, 410, 413]; // these answers will be the same next time
const EPOCH = 1; // instead of a status: the store has begun another epoch

/** @param {any} part */
const record = (part) => part && typeof part === "object";
/** Return a record that inherits nothing: names may be "constructor", and prototypes frozen or polluted. @param {any} [from] */
const bare = (from) => put(create(null), from);
/** @param {string} text */
const parse = (text) => JSON.parse(text, (_, part) => (record(part) && !isArray(part) ? bare(part) : part));

// ── who gets which arm (docs/how-to/assignment.md) ────────────────────────────────────────────

/** Return the murmur3 hash (x86, 32 bits, seed 0) of a text. @param {string} text */
export const murmur3 = (text) => {
  const bytes = new TextEncoder().encode(text);
  const { length } = bytes;
  let hash = 0;
  for (let at = 0; at < length; at += 4) {
    let block = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
    block = Math.imul(block, 0xcc9e2d51);
    hash ^= Math.imul((block << 15) | (block >>> 17), 0x1b873593);
    if (at + 4 <= length) hash = Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64;
  }
  hash ^= length;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
};

/** Return the arm at a number below 2^32, by shares. @param {[string, number][]} arms @param {number} number */
export const draw = (arms, number) => {
  const point = (number / WHOLE) * arms.reduce((sum, [, share]) => sum + share, 0);
  let reached = 0;
  return (arms.find(([, share]) => point < (reached += share)) ?? arms[arms.length - 1])[0];
};

/** Draw a number below 2^32. */
const chance = () => crypto.getRandomValues(new Uint32Array(1))[0];

/** Return the numbers that decide: hashed with an id, else drawn. @param {string} [id]
 * @returns {(key: string) => number} */
export const numbers = (id) => {
  if (id) return (key) => murmur3(key + ":" + id);
  /** @type {Record<string, number>} */
  const drawn = {};
  return (key) => (drawn[key] ??= chance());
};

/**
 * Return arms in all experiments; null: not in it. Arms that are known stay.
 * @param {Record<string, Experiment>} experiments @param {(key: string) => number} number
 * @param {Record<string, string | null>} [known]
 */
export const assign = (experiments, number, known = {}) => {
  /** @param {string} name @param {string} purpose */
  const at = (name, purpose) => number((experiments[name].salt ?? name) + ":" + purpose);
  return fromEntries(
    entries(experiments).map(([name, experiment]) => [
      name,
      hasOwn(known, name)
        ? known[name]
        : at(name, "holdout") / WHOLE >= (experiment.holdout ?? 0) &&
            (experiment.exclude_with ?? []).every((other) =>
              hasOwn(known, other) ? known[other] == null : at(name, "group") < at(other, "group"),
            )
          ? draw(experiment.arms, at(name, "arm"))
          : null,
    ]),
  );
};

// ── what is sent ──────────────────────────────────────────────────────────────────────────────

const encode = encodeURIComponent;

/** Return the cohort at a moment: its label, and when its people have been measured. @param {Config} config
 * @param {number} now */
const cohort = ({ cohorts }, now) => {
  if (!cohorts) return { label: "", end: null };
  const { days, window } = cohorts;
  const offset = days === 7 ? 4 : 0; // 1970-01-05 was a Monday
  const first = Math.floor((Math.floor(now / DAY) - offset) / days) * days + offset;
  let label = new Date(first * DAY).toISOString().slice(0, 10);
  if (offset) {
    const year = new Date((first + 3) * DAY).getUTCFullYear(); // a week belongs to the year of its Thursday
    const week = Math.floor((first + 3 - Date.UTC(year, 0) / DAY) / 7) + 1;
    label = year + "-W" + String(week).padStart(2, "0");
  }
  return { label: "@" + label, end: (first + days) * DAY + window * HOUR };
};

/** Return the classes of somebody in an experiment, as posts write them. @param {Config} config @param {string} name @param {string} arm
 * @param {Record<string, string>} levels @param {string} label */
const classes = (config, name, arm, levels, label) => {
  const { covariates } = config.experiments[name];
  const experiment = encode(name);
  if (!covariates.length) return [experiment + ":" + encode(arm) + label];
  return covariates.map((covariate) => `${experiment}/${encode(covariate)}:${encode(arm)}:${encode(levels[covariate])}${label}`);
};

/** Return whether a unit counts a metric: experiments keep those that they began with. @param {Config} config
 * @param {string} key @param {string} name */
const counts = ({ experiments }, key, name) =>
  key.split("/").every((part) => experiments[decodeURIComponent(part)]?.metrics?.includes(name) ?? true);

/** Return a total as it is sent: within bounds, on the metric's grid. @param {Config} config @param {string} name
 * @param {Totals} totals */
const value = ({ metrics }, name, totals) => {
  const { bounds, scale, missing } = metrics[name];
  const total = totals[name] ?? (missing ? null : 0);
  return total === null ? null : Math.floor(Math.min(Math.max(total, bounds[0]), bounds[1]) * scale + 0.5) / scale;
};

/** Return the lines that take a unit from the acknowledged totals to others. @param {Config} config @param {Unit} unit
 * @param {Totals} to */
const lines = (config, unit, to) => {
  const changes = unit.enrolled ? [] : [""];
  /** @param {string} name @param {Totals} totals */
  const at = (name, totals) => value(config, name, totals);
  /** @param {string} name */
  const changed = (name) => at(name, to) !== at(name, unit.sent);
  for (const name in config.metrics)
    if (changed(name)) changes.push(`:${encode(name)}:${at(name, unit.sent) ?? ""}>${at(name, to)}`);
  for (const ratio of config.ratios) {
    /** @param {Totals} totals */
    const both = (totals) => (ratio.some((name) => at(name, totals) === null) ? "" : ratio.map((name) => at(name, totals)).join("/"));
    if (ratio.some(changed) && both(to)) changes.push(`:${ratio.map(encode).join("/")}:${both(unit.sent)}>${both(to)}`);
  }
  return unit.heads.flatMap((name) => changes.map((change) => name + change));
};

/** @param {string[]} body */
const fits = (body) => body.length <= MOST_LINES && body.join().length <= MOST_BYTES - 60;

/** Return the totals of a unit's next post: all that changed, or as many as fit into it. @param {Config} config @param {Unit} unit */
const totalsThatFit = (config, unit) => {
  let to = unit.sent;
  for (const name in config.metrics) {
    /** @param {string} metric */
    const frozen = (metric) => unit.frozen?.includes(metric);
    if (frozen(name) || config.ratios.some((ratio) => ratio.includes(name) && ratio.some(frozen))) continue;
    const more = bare(to);
    if (name in unit.totals) more[name] = unit.totals[name];
    if (!fits(lines(config, unit, more))) break;
    to = more;
  }
  return to;
};

/** Make a nonce: the hour, and random digits. */
const nonce = () =>
  Math.floor(Date.now() / HOUR).toString(16).padStart(8, "0") +
  Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(16).padStart(8, "0")).join("");

// ── the client ────────────────────────────────────────────────────────────────────────────────

/** @param {number} ms @returns {Promise<void>} */
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** @type {RequestInit} */
const QUIET = { credentials: "omit", referrerPolicy: "no-referrer" };

/**
 * Start a client of the collector at ``url``. It never throws, and never delays the page.
 * @param {Options} [options] @returns {Promise<Client>}
 */
export const init = async (options) => {
  let KEY = "";
  /** @type {string | undefined} */ let id;
  /** @type {boolean | undefined} */ let development;
  /** @type {URL} */ let base;
  /** @type {Config | undefined} */ let config;
  /** @type {Record<string, string | null>} */ let arms = {};
  /** @type {State} */ let state = { arms, units: {} };
  /** @type {Storage | undefined} */ let storage;
  /** @type {unknown} */ let begun;
  let off = true; // nothing is remembered or sent
  let held = false; // this tab holds the lock: the state in memory is the newest
  let dirty = false;
  let hurry = false;
  let failed = false;
  let wait = 0;
  let count = 0;
  let go = () => {};
  /** @type {Promise<void> | undefined} */ let running;
  /** @type {Map<string, Promise<number>>} */ const underWay = new Map();
  /** @type {Set<string>} */ const joint = new Set(); // posts of several units, made here and never without an answer

  /** @param {unknown} text */
  const warn = (text) => void (development && console.warn("kanab: " + text));

  // ── what is remembered ──

  /** Write, if that is possible; return whether it was. @param {string} key @param {unknown} content */
  const write = (key, content) => {
    try {
      storage?.setItem(key, JSON.stringify(content));
      return !!storage;
    } catch (problem) {
      warn(`nothing can be stored here (${problem})`);
      return false;
    }
  };
  /** @param {string} key */
  const read = (key) => {
    try {
      return parse(storage?.getItem(key) ?? "null");
    } catch {
      return null; // blocked, or not ours
    }
  };
  const save = () => !off && write(KEY, state);
  const load = () => {
    const stored = read(KEY);
    state = record(stored?.arms) && record(stored.units) ? stored : { arms, units: bare() };
    for (const [key, unit] of entries(state.units)) {
      const whole = isArray(unit?.heads) && record(unit.totals) && record(unit.sent);
      if (!whole || (config && unit.end && Date.now() > unit.end + config.nonce_life * HOUR)) state.units[key] = bare({ over: 1 });
    }
  };
  const steps = () => keys(storage ?? {}).filter((key) => key.startsWith(KEY + " ")).sort();
  const wipe = () => {
    for (const each of ["localStorage", "sessionStorage"])
      try {
        storage = /** @type {any} */ (globalThis)[each];
        for (const key of [KEY, KEY + LEASE, ...steps()]) storage?.removeItem(key);
      } catch {
        continue; // blocked: then there is nothing
      }
    storage = undefined;
  };
  /** Count nothing more, and forget what was remembered of it. @param {Unit} unit */
  const close = (unit) => {
    for (const key of keys(unit)) delete (/** @type {any} */ (unit)[key]);
    unit.over = 1;
  };
  /** Close what another epoch of the store began: what of it counted, nobody knows. @param {string} [epoch] */
  const closeAllBut = (epoch) => values(state.units).forEach((unit) => (unit.epoch || "") !== (epoch || "") && close(unit));

  /** Run while no other tab does. @type {(run: () => Promise<void>) => Promise<void>} */
  const lock = async (run) => {
    if (navigator.locks) return navigator.locks.request(KEY, run);
    const tab = chance(); // a lease: written, and read again when every tab must have seen it
    for (;;) {
      const lease = read(KEY + LEASE);
      const left = lease?.[1] - Date.now();
      if (!(left > 0 && left <= TERM)) {
        if (!write(KEY + LEASE, [tab, Date.now() + TERM])) return;
      } else if (lease[0] === tab) break;
      await sleep(SETTLE + SETTLE * Math.random());
    }
    const free = () => storage?.removeItem(KEY + LEASE);
    addEventListener("pagehide", free, { once: true });
    await run();
    free();
  };

  // ── what happens ──

  /** @param {Step} step */
  const apply = ([verb, name, more, now]) => {
    if (!config) return;
    const { epoch } = config;
    const { units } = state;
    if (verb === "track") {
      const { bounds, scale } = config.metrics[name];
      const binary = scale === 1 && bounds[0] === 0 && bounds[1] === 1;
      for (const [key, { over, end, totals }] of entries(units))
        if (!over && now <= (end ?? now) && counts(config, key, name))
          totals[name] = binary ? +(more > 0) : (totals[name] ?? 0) + more;
      return;
    }
    const arm = arms[name];
    if (arm == null || hasOwn(units, encode(name))) return;
    state.arms[name] = arm;
    const { label, end } = cohort(config, now);
    /** @param {string[]} heads */
    const unit = (heads) => bare({ heads, end, epoch, totals: bare(), sent: bare() });
    units[encode(name)] = unit(classes(config, name, arm, more, label));
    for (const pair of config.pairs) {
      const key = pair.map(encode).join("/");
      const both = pair.map((experiment) => units[encode(experiment)]);
      if (!pair.includes(name) || both.some((unit) => !unit || unit.over) || units[key]) continue;
      if (state.pairs && !state.pairs.includes(key)) continue;
      units[key] = unit([key + ":" + pair.map((experiment) => encode(arms[experiment] ?? "")).join(":") + label]);
    }
  };

  /** @param {Step} step */
  const note = (step) => {
    if (off) return;
    if (held) {
      apply(step);
      save();
    } else write(`${KEY} ${Date.now()}.${1e6 + count++}.${chance()}`, step); // a key of its own: tabs cannot clash
    dirty = true;
    wake();
  };

  // ── delivery ──

  /** @param {string} path @param {RequestInit} [more] @returns {Promise<Response>} */
  const ask = async (path, more) => {
    const late = sleep(PATIENCE).then(() => Promise.reject("no answer"));
    return Promise.race([fetch(new URL(path, base), { ...QUIET, ...more }), late]);
  };
  /** Return the collector's status; 0 where somebody in between has spoken, a proxy's page or a hotel's. @param {Response} answer */
  const understand = ({ status, headers }) => {
    const answer = headers.get("kanab-answer");
    if (config && answer === "epoch") {
      config.epoch = headers.get("kanab-epoch") ?? "";
      return EPOCH;
    }
    if (answer || !config?.answers) return status;
    warn(`an answer that is not the collector's (${status}): sent again later`);
    return 0;
  };

  /** Store the post to be sent next: it is on the device before it leaves. @param {Unit} unit @returns {boolean} */
  const prepare = (unit) => {
    if (!config || unit.over) return false;
    if (unit.post) {
      if (Date.now() - (unit.at ?? 0) <= config.nonce_life * HOUR) return save();
      giveUp(unit);
      return prepare(unit);
    }
    const plan = config;
    /** @param {Unit} each */
    const sending = (each) => each.over || each.enrolled || each.alone || each.post;
    const group = values(state.units).filter( // enrolled at one moment: counted in all or in none
      (each) => each === unit || !(sending(unit) || sending(each) || each.end !== unit.end || each.epoch !== unit.epoch),
    );
    let next = group.map((each) => totalsThatFit(plan, each));
    const body = () => group.flatMap((each, at) => lines(plan, each, next[at]));
    if (!fits(body())) next = group.map(({ sent }) => sent); // totals later: a post holds a hundred enrollments
    while (!fits(body())) group.pop();
    if (!body().length) return false;
    const post = `kanab/1 ${nonce()}${unit.epoch ? " " + unit.epoch : ""}\n${body().join("\n")}\n`;
    if (group[1]) joint.add(post);
    group.forEach((each, at) => put(each, { post, then: next[at], at: Date.now() }));
    return save();
  };

  /** Freeze the totals of a post of which nobody will know whether it counted. @param {Unit} unit */
  const giveUp = (unit) => {
    const { then = {}, sent, frozen = [] } = unit;
    if (unit.enrolled) {
      unit.frozen = [...frozen, ...keys(then).filter((name) => then[name] !== sent[name])];
      delete unit.post;
    } else close(unit);
    save();
  };

  /** Send what is to be sent of a unit. Units that share a post, and calls for one unit, share its answer. @param {Unit} unit */
  const deliver = async (unit) => {
    try {
      while (!off && navigator.onLine !== false && prepare(unit)) {
        const body = unit.post ?? "";
        if (!underWay.has(body))
          underWay.set(body, ask("v1/t", { method: "POST", body, keepalive: true }).then(understand).catch(() => 0));
        const status = await underWay.get(body) ?? 0; // 0: the same bytes again, later
        underWay.delete(body);
        if (unit.post !== body) continue; // another call has taken the answer
        if (status === EPOCH) closeAllBut(config?.epoch);
        else if (status >= 200 && status < 300) put(unit, { sent: unit.then, enrolled: 1 });
        else if (status === 400 && joint.has(body)) unit.alone = 1; // nothing was counted: none keeps out the others
        else if (FINAL.includes(status)) giveUp(unit);
        else {
          joint.delete(body); // who knows what was counted
          failed = true;
          return;
        }
        delete unit.post;
        save();
      }
    } catch (problem) {
      failed = true; // what is stored here is not ours: it stays silent
      warn(problem);
    }
  };
  const post = () => Promise.all(values(state.units).map(deliver));

  const run = async () => {
    if (off) return;
    try {
      load();
      held = true;
      do {
        for (const key of steps()) {
          const step = read(key);
          storage?.removeItem(key);
          try {
            apply(step);
          } catch (problem) {
            warn(problem); // not ours, or of another plan
          }
        }
        save();
        if (!hurry) await new Promise((done) => setTimeout((go = /** @type {() => void} */ (done)), DELAY));
        hurry = dirty = failed = false;
        await post();
        await sleep(SETTLE);
      } while (dirty && !failed && !off);
    } catch (problem) {
      failed = true;
      warn(problem);
    }
    held = false;
  };
  const wake = () =>
    (running ??= (async () => {
      do {
        failed = true; // unless it runs
        await lock(run).catch(warn); // a page that is being left gets none
      } while (dirty && !failed && !off);
      running = undefined;
      wait = failed && !off ? Math.min(2 * wait || DELAY, 3e5) : 0;
      if (wait) setTimeout(wake, wait * (0.5 + Math.random()));
    })());
  const rush = () => {
    hurry = true;
    go();
    if (held) post(); // at once: a page that is being left gets no other chance
    return wake();
  };

  // ── the beginning ──

  /** @param {string} mode */
  const openStorage = (mode) => {
    const opened = /** @type {any} */ (globalThis)[mode + "Storage"];
    const probe = "" + chance();
    opened.setItem(KEY + ".", probe);
    if (opened.getItem(KEY + ".") !== probe) throw "it forgets";
    opened.removeItem(KEY + ".");
    return opened;
  };

  const begin = async () => {
    /** @type {Options} */
    const { url = "/", storage: mode = "local", ...more } = options ?? {};
    ({ id, development } = more);
    base = new URL(`${url}`.replace(/\/*$/, "/"), document.baseURI);
    KEY = "kanab/1 " + base;
    if (/** @type {any} */ (navigator).globalPrivacyControl) return wipe();
    /** @type {Config} */
    const plan = parse(await (await ask("v1/config.json")).text());
    if (plan.format !== "kanab-config/1") throw "unknown format";
    config = plan;
    if (navigator.webdriver) return;
    const { experiments } = plan;
    try {
      storage = mode === "none" ? undefined : openStorage(mode);
    } catch (problem) {
      warn(`nothing can be stored here: arms are shown, and nothing is sent (${problem})`);
    }
    if (!storage) {
      arms = assign(experiments, numbers(id));
      return;
    }
    off = false;
    const remember = () => {
      load();
      closeAllBut(plan.epoch);
      const stays = entries(state.arms).filter(
        ([name, arm]) => hasOwn(experiments, name) && (hasOwn(state.units, encode(name)) || !id) &&
          (arm === null || experiments[name].arms.some(([planned]) => planned === arm)),
      );
      state.arms = arms = assign(experiments, numbers(id), fromEntries(stays));
      if (plan.pairs.length > plan.most_pairs)
        state.pairs ??= plan.pairs
          .filter((pair) => pair.every((name) => arms[name] !== null))
          .map((pair) => /** @type {const} */ ([chance(), pair.map(encode).join("/")]))
          .sort(([a], [b]) => a - b)
          .slice(0, plan.most_pairs)
          .map(([, key]) => key);
      return JSON.stringify(state) !== storage?.getItem(KEY);
    };
    if (remember())
      await new Promise((ready) => {
        lock(async () => {
          if (remember()) save();
          ready(null);
          await sleep(SETTLE);
        }).then(ready, ready);
      });
    addEventListener("visibilitychange", () => document.visibilityState === "hidden" && rush());
    addEventListener("pagehide", rush);
    addEventListener("online", wake);
    addEventListener("storage", ({ key, newValue, storageArea }) => {
      if (storageArea === storage && (key === KEY || key === null) && newValue === null) off = true; // opted out elsewhere
    });
    if (keys(state.units).length || steps().length) rush();
  };

  /** @param {unknown} problem */
  const fail = (problem) => {
    off = true;
    warn(`${config ? "nothing is counted" : "the config cannot be read: everybody sees the control"} (${problem})`);
  };
  begun = await Promise.race([begin().catch(fail).then(() => 1), sleep(PATIENCE)]);
  if (!begun) warn("no config in time: everybody sees the control"); // an arm that comes later was not shown

  /** Make a verb that never throws. @template {any[]} Given, Result @param {(plan: Config, ...given: Given) => Result} run
   * @returns {(...given: Given) => Result | null} */
  const verb = (run) => (...given) => {
    try {
      return config && begun ? run(config, ...given) : null;
    } catch (problem) {
      warn(problem);
      return null;
    }
  };
  /** Return whether the plan has a name. @param {Record<string, unknown>} names @param {string} kind @param {string} name */
  const known = (names, kind, name) => {
    if (hasOwn(names, name)) return true;
    warn(`unknown name "${name}". The plan's ${kind}: ${keys(names).join(", ")}.`);
  };

  return {
    ready: !!(begun && config),
    variant: verb(({ experiments }, /** @type {string} */ name) =>
      known(experiments, "experiments", name) ? (arms[name] ?? experiments[name].control) : null),
    enroll: verb(({ experiments, covariates }, /** @type {string} */ name, /** @type {Record<string, Level>} */ levels = {}) => {
      if (!known(experiments, "experiments", name)) return;
      /** @type {Record<string, string>} */
      const sent = bare();
      for (const covariate of experiments[name].covariates) {
        const declared = covariates[covariate];
        const level = String(levels?.[covariate] ?? "");
        const fits = !level || declared.includes(level);
        if (!fits) warn(`unknown level for "${covariate}". Declared levels: ${declared.join(", ")}.`);
        sent[covariate] = fits ? level : declared.includes("other") ? "other" : "";
      }
      note(["enroll", name, sent, Date.now()]);
    }),
    track: verb(({ metrics }, /** @type {string} */ name, amount = 1) => {
      if (!known(metrics, "metrics", name)) return;
      if (Number.isFinite(amount)) note(["track", name, amount, Date.now()]);
      else warn(`the amount for "${name}" is not a number`);
    }),
    flush: async () => (off ? undefined : rush()),
    optOut: async () => {
      off = true;
      arms = {};
      go();
      if (!KEY) return;
      if (storage) dispatchEvent(new StorageEvent("storage", { key: KEY, storageArea: storage })); // to other clients of this page
      wipe();
      await lock(async () => wipe()).catch(warn); // once more, when no other tab is writing
    },
  };
};
