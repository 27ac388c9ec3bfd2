// @ts-check
/**
 * Kanab as a provider for OpenFeature's web SDK: flags are experiments, tracking events are metrics.
 *
 *   import { OpenFeature } from "@openfeature/web-sdk";
 *   import { KanabProvider } from "kanab/openfeature";
 *   await OpenFeature.setProviderAndWait(new KanabProvider({ url: "/" }), { tier: 3 });
 *   const flags = OpenFeature.getClient();
 *   if (flags.getStringValue("checkout", "A") === "B") showTheNewCheckout();
 *   flags.track("minutes", { value: 4 });
 *
 * An evaluation enrolls: the levels of covariates are taken from the context. The context's targetingKey, if there
 * is one, is the stable id by which arms are drawn; it never leaves the page.
 */
import { init } from "../src/kanab/static/kanab.js";

/** @import { EvaluationContext, JsonValue, Provider, ResolutionDetails, TrackingEventDetails } from "@openfeature/web-sdk" */
/** @typedef {import("../src/kanab/static/kanab.js").Client} KanabClient */
/** @typedef {import("../src/kanab/static/kanab.js").Level} Level */
/** @typedef {Omit<import("../src/kanab/static/kanab.js").Options, "id"> & { enroll?: boolean }} ProviderOptions
 *    enroll: false if evaluating a flag is not yet meeting the change; then call ``provider.client.enroll``. */

/** @type {Record<string, boolean>} */
const TRUTH = { true: true, on: true, false: false, off: false };

/** @implements {Provider} */
export class KanabProvider {
  metadata = { name: "kanab" };
  runsOn = /** @type {const} */ ("client");

  /** @param {ProviderOptions} options */
  constructor(options) {
    this.options = options;
    /** @type {KanabClient | undefined} */
    this.client = undefined;
  }

  /** @param {EvaluationContext} [context] */
  async initialize(context) {
    this.client = await init({ ...this.options, id: context?.targetingKey });
  }

  /** Another person, or one who has just said who they are. @param {EvaluationContext} before @param {EvaluationContext} after
   * @returns {Promise<void> | void} */
  onContextChange(before, after) {
    if (before.targetingKey !== after.targetingKey) return this.initialize(after);
  }

  async onClose() {
    await this.client?.flush();
  }

  /** @param {string} flag @param {string} fallback @param {EvaluationContext} context */
  resolveStringEvaluation(flag, fallback, context) {
    return this.#resolve(flag, fallback, context, (arm) => arm);
  }

  /** Arms called on and off, or true and false. @param {string} flag @param {boolean} fallback
   * @param {EvaluationContext} context */
  resolveBooleanEvaluation(flag, fallback, context) {
    return this.#resolve(flag, fallback, context, (arm) => (Object.hasOwn(TRUTH, arm) ? TRUTH[arm] : undefined));
  }

  /** Arms that are numbers. @param {string} flag @param {number} fallback @param {EvaluationContext} context */
  resolveNumberEvaluation(flag, fallback, context) {
    return this.#resolve(flag, fallback, context, (arm) => (Number.isFinite(+arm) ? +arm : undefined));
  }

  /** An arm is a name, never an object. @template {JsonValue} T @param {string} flag @param {T} fallback
   * @param {EvaluationContext} context */
  resolveObjectEvaluation(flag, fallback, context) {
    return this.#resolve(flag, fallback, context, () => undefined);
  }

  /** A running total grows by the event's value, or by 1. @param {string} metric @param {EvaluationContext} _context
   * @param {TrackingEventDetails} [details] */
  track(metric, _context, details) {
    this.client?.track(metric, details?.value);
  }

  /**
   * @template T
   * @param {string} flag @param {T} fallback @param {EvaluationContext} context
   * @param {(arm: string) => T | undefined} read
   * @returns {ResolutionDetails<T>}
   */
  #resolve(flag, fallback, context, read) {
    const { client } = this;
    if (!client?.ready) return { value: fallback, reason: "DEFAULT" };
    const arm = client.variant(flag);
    if (arm === null)
      return { value: fallback, reason: "ERROR", errorCode: /** @type {any} */ ("FLAG_NOT_FOUND") };
    const value = read(arm);
    if (value === undefined)
      return { value: fallback, reason: "ERROR", errorCode: /** @type {any} */ ("TYPE_MISMATCH") };
    if (this.options.enroll !== false) client.enroll(flag, /** @type {Record<string, Level>} */ (context));
    return { value, variant: arm, reason: "SPLIT" };
  }
}
