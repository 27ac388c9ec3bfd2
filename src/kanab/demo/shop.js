// The shop of the demonstration: two experiments, two metrics, and a log of every byte that leaves.

const log = document.getElementById("log");
const plain = window.fetch.bind(window);
window.fetch = async (target, options = {}) => {
  const answer = await plain(target, options);
  if (options.method === "POST") {
    const lines = `POST ${new URL(target, location).pathname}  →  ${answer.status}\n${options.body}`;
    log.textContent = log.textContent === "nothing yet" ? lines : `${log.textContent}\n${lines}`;
  }
  return answer;
};

const { init } = await import("/kanab.js");
const kanab = await init({ url: "/" });
const checkout = kanab.variant("checkout");
const banner = kanab.variant("banner");
const search = kanab.variant("search");
const device = matchMedia("(pointer: coarse)").matches ? "phone" : "desktop";
const tier = document.getElementById("tier");

const tell = (id, text) => {
  document.getElementById(id).textContent = text;
};
tell("arms", `You see checkout ${checkout}, banner ${banner} and search ${search}. Your browser drew all three, and remembers them; nobody else does.`);
document.getElementById("banner").hidden = banner !== "on";
document.getElementById("search").placeholder = search === "new" ? "What do you need?" : "Search";

const enroll = () => {
  kanab.enroll("checkout", { tier: Number(tier.value), device });
  kanab.enroll("banner");
  kanab.enroll("search");
};

const buy = () => {
  enroll();
  kanab.track("bought");
  tell("thanks", "Thank you. The kettle is on its way.");
};

const button = (words, action, main) => {
  const made = document.createElement("button");
  made.textContent = words;
  made.className = main ? "main" : "";
  made.addEventListener("click", action);
  return made;
};

const place = document.getElementById("checkout");
if (checkout === "B") {
  place.append(button("Buy now", buy, true));
} else {
  const basket = button("Put into the basket", () => {
    enroll();
    basket.replaceWith(button("Go to the checkout", buy, true));
  });
  place.append(basket);
}

document.getElementById("stay").addEventListener("click", () => {
  enroll();
  kanab.track("minutes", 2);
});
document.getElementById("leave").addEventListener("click", async () => {
  await kanab.optOut();
  tell("arms", "Everything that this browser remembered is deleted, and nothing more is sent.");
});
