// Numbers and times in words. What is used is rounded up and what is free down, as `moorage inspect` does.
import { now } from "./time.js";

export const NANO = 1_000_000_000;
const STEP = NANO / 10_000;

const trimmed = (hundredths) => String(hundredths / 100);

/** Percent of a device, to two places, rounded up. */
export const percentUp = (nano) => `${trimmed(Math.ceil(nano / STEP))}%`;

/** Percent of a device, to two places, rounded down. */
export const percentDown = (nano) => `${trimmed(Math.floor(nano / STEP))}%`;

/** So many GPUs, to two places, rounded up. */
export const gpusUp = (nano) => trimmed(Math.ceil((nano * 100) / NANO));

/** So many GPUs, to two places, rounded down. */
export const gpusDown = (nano) => trimmed(Math.floor((nano * 100) / NANO));

/** Memory: whole GiB where it is, else MiB. */
export const memory = (mib) => (mib % 1024 === 0 ? `${mib / 1024} GiB` : `${mib} MiB`);

/** How long something is, of milliseconds. */
export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** A time of day, with the day where it is another one; "" for what is no time. */
export function clock(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  const day = at.toDateString() === new Date(now()).toDateString() ? "" : `${at.toLocaleDateString()} `;
  return day + at.toLocaleTimeString();
}

/** "1 pod", "2 pods". */
export const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

const CLOSED = {
  contended: "used past its reservation",
  ill: "unhealthy",
  "no-book": "its reservation has no readable book",
  leaving: "its reservation is being deleted",
  lost: "its reservation is gone",
  disputed: "several reservations stand for it",
  "no-group": "its reservation names no GPU group",
};

/** Why a device takes nobody. */
export const closedText = (why) => CLOSED[why] ?? why;

/** The name of a device: the number that `moorage inspect` shows, too. Of MIG slices, which have none, by its place. */
export const deviceName = (device, place) => (device.number === undefined ? `MIG slice ${place}` : `GPU ${device.number}`);

/** A tenant by name; one that may not be seen has none. */
export const tenantName = (tenant) =>
  tenant.isHidden ? "somebody" : tenant.name ? `${tenant.namespace}/${tenant.name}` : tenant.uid;

/** What is to be said of a tenant beside its share; "" of one that is bound. */
export const tenantState = (tenant) => (tenant.isOnItsWay ? ", on its way" : tenant.isKept ? ", kept: its pod is gone" : "");

/** What a tenant uses of its share, as the agent of its node reports it; "" where nobody knows. */
export function tenantUse(tenant) {
  const { memoryPercent, smPercent } = tenant;
  if (memoryPercent === undefined && smPercent === undefined) return "";
  const percent = (value) => (value === undefined ? "not known" : `${value}%`);
  const said = [`uses ${percent(memoryPercent)} of its memory`, `${percent(smPercent)} of its SMs`];
  if (tenant.idleSince) said.push(`idle since ${clock(tenant.idleSince)}`);
  return said.join(", ");
}

/** Whether a tenant is a pod with a page of its own. */
export const hasPage = (tenant) => Boolean(tenant.name) && !tenant.isHidden && !tenant.isKept;

/** Whether others than those that are shown may be on a device: their pods were not read. */
export const isUnsure = (device) => device.kind === "unknown" || Boolean(device.isPartlyKnown);

/** What a tenant has of GPUs: of a MIG slice nothing, since slices are not among the GPUs that are counted. */
export const ofGpu = (device, tenant) => (device.resource ? 0 : tenant.nano);

/** A device in a sentence: what screen readers say, and what stands in its tooltip. */
export function deviceText(device, place) {
  const used = device.usedNano ?? 0;
  const free = device.freeNano ?? 0;
  const said = [deviceName(device, place)];
  if (device.closed?.length) said.push(`closed: ${device.closed.map(closedText).join(", ")}`);
  else if (device.kind === "unknown") said.push("not known who is on it");
  else if (device.kind === "free") said.push("idle");
  else if (!device.tenants?.length) said.push("held for shares, idle");
  else said.push(device.kind === "whole" ? "whole" : "shared");
  if (used) said.push(`${percentUp(used)} used`);
  for (const tenant of device.tenants ?? []) {
    const use = tenantUse(tenant);
    said.push(`${tenantName(tenant)} ${percentUp(tenant.nano)}${tenantState(tenant)}${use ? `, ${use}` : ""}`);
  }
  if (device.isPartlyKnown) said.push("the rest is not known");
  if (free && used && !device.closed?.length) said.push(`${percentDown(free)} free`);
  return said.join("; ");
}
