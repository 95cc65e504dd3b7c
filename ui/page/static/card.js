// A node of the map: its name and how it stands, and each device with its tenants' shares to scale.
import { deviceLink, el, link } from "./dom.js";
import { NANO, deviceName, deviceText, gpusUp, hasPage, isUnsure, percentUp, tenantName, tenantState, tenantUse } from "./format.js";

//: A tenant of a large device is named inside it from this share on.
const ROOM_FOR_A_NAME = 0.14 * NANO;

/** Draw a node. `look` has `isLarge`, and for a tenant of it `colour(tenant)` and `isLit(node, tenant)`. */
export function card(node, look) {
  const devices = (node.devices ?? []).map((one, place) => device(node, one, place, look));
  for (let lost = 0; lost < (node.unhealthyGpus ?? 0); lost += 1) devices.push(missing("unhealthy"));
  for (let lost = 0; lost < (node.lostGpus ?? 0); lost += 1) devices.push(missing("lost"));
  const used = `${node.isPartlyKnown ? "≥ " : ""}${gpusUp(node.usedNano ?? 0)}/${node.gpus ?? 0}`;
  const head = el(
    "h2",
    {},
    el("a", { href: link("node", node.name), title: node.name }, node.name),
    ...states(node).map((state) => el("span", { class: "state", title: state }, state)),
    el("span", { class: "amount", title: "GPUs used, of those offered" }, used),
  );
  const isClosed = node.isNotReady || node.isCordoned;
  return el("li", { class: isClosed ? "node closed" : "node" }, head, el("ol", { class: "devices" }, devices));
}

/** What is to be known of a node, in words. */
export function states(node) {
  return [
    node.isNotReady && "not ready",
    node.isCordoned && "cordoned",
    node.isMig && "MIG",
    node.isMultiplied && "GPUs offered several times",
    node.unhealthyGpus && `${node.unhealthyGpus} unhealthy`,
    node.lostGpus && `${node.lostGpus} lost`,
  ].filter(Boolean);
}

function device(node, one, place, look) {
  const text = deviceText(one, place);
  const shares = (one.tenants ?? []).map((tenant) => share(node, deviceName(one, place), tenant, look));
  const rest = Math.max(0, NANO - (one.usedNano ?? 0));
  if (rest) {
    const isStranded = node.isNotReady || node.isCordoned || one.closed?.length;
    const kind = isUnsure(one) ? "unknown" : isStranded ? "stranded" : one.kind === "free" ? "idle" : "";
    const left = el("span", { class: `left ${kind}` });
    left.style.flexGrow = String(rest);
    shares.push(left);
  }
  const label = `${node.name} ${text}`;
  const whole = el("a", { class: "device", href: deviceLink(node, one, place), tabindex: "-1", "aria-label": label, title: text });
  return el("li", { class: "gpu" }, whole, shares);
}

/** A share is a link to its pod. Keys reach it by the device's page, so that the map stays one stop of the Tab key. */
function share(node, device, tenant, look) {
  const use = tenantUse(tenant);
  const text = `${tenantName(tenant)} ${percentUp(tenant.nano)}${tenantState(tenant)}${use ? `, ${use}` : ""}`;
  const label = `${text} of ${node.name} ${device}`;
  const made = hasPage(tenant)
    ? el("a", { href: link("pod", tenant.namespace, tenant.name), tabindex: "-1", title: text, "aria-label": label })
    : el("span", { role: "img", title: text, "aria-label": label });
  made.className = `share ${look.colour(tenant)}`;
  made.style.flexGrow = String(Math.max(tenant.nano, NANO / 200));
  if (tenant.isHidden) made.classList.add("hidden");
  if (tenant.isOnItsWay || tenant.isKept) made.classList.add("coming");
  if (!look.isLit(node, tenant)) made.classList.add("dim");
  if (look.isLarge && tenant.nano >= ROOM_FOR_A_NAME) {
    const name = tenant.isHidden ? "somebody" : tenant.name || tenant.uid;
    made.append(el("b", {}, name), el("i", {}, percentUp(tenant.nano)));
  }
  if (use) made.append(useBar(tenant));
  return made;
}

/** How much of its memory a tenant uses, as a bar at the foot of its share. */
function useBar(tenant) {
  const bar = el("s", { class: "use", "aria-hidden": "true" });
  bar.style.width = `${tenant.memoryPercent ?? 0}%`;
  return bar;
}

function missing(why) {
  const label = `a GPU that is ${why}`;
  const left = el("span", { class: "left stranded", role: "img", "aria-label": label, title: label });
  left.style.flexGrow = "1";
  return el("li", { class: "gpu" }, left);
}
