// The pages' side of what this device keeps (keeper_worker.js).

/** Send a message to the worker that keeps a page, if this browser has it; wait until it is done. */
export async function tellKeeper(message, scope = "/orders/") {
  try {
    const { active } = await navigator.serviceWorker.getRegistration(scope);
    const { port1, port2 } = new MessageChannel();
    const done = new Promise((resolve) => port1.addEventListener("message", resolve));
    port1.start();
    active.postMessage(message, [port2]);
    await done;
  } catch {
    // no worker runs, or the browser forbids them
  }
}

/** Have this browser keep a page from now on; `script` is its worker. Throw if it cannot. */
export async function startKeeping(script, scope) {
  await navigator.serviceWorker.register(script);
  await navigator.serviceWorker.ready;
  await tellKeeper("keep", scope);
}
