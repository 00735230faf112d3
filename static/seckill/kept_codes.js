// The pages' side of codes that this device keeps (codes_worker.js).

/** Send a message to the worker that keeps codes, if this browser has it; wait until it is done. */
export async function tellKeeper(message) {
  try {
    const { active } = await navigator.serviceWorker.getRegistration("/orders/");
    const { port1, port2 } = new MessageChannel();
    const done = new Promise((resolve) => port1.addEventListener("message", resolve));
    port1.start();
    active.postMessage(message, [port2]);
    await done;
  } catch {
    // no worker runs, or the browser forbids them
  }
}
