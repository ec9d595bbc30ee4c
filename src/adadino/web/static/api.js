// The server's answers; a refusal becomes an Error with the server's own sentence.

const BUSY = [429, 503];  // the server says when to come back
const ATTEMPTS = 5;
const LONGEST_S = 10;

// An answer that is good. A question the server is too busy for is asked again, a few times;
// `onBusy` hears of it.
export async function request(path, { onBusy, ...options } = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const response = await send(path, options);
    if (response.ok) return response;
    const again = BUSY.includes(response.status) && attempt < ATTEMPTS && !options.method;
    if (!again) throw await refusal(response);
    onBusy?.();
    await pause(waiting(response, attempt), options.signal);
  }
}

export async function ask(path, options = {}) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json().catch(() => null);
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
}

async function refusal(response) {
  return problem(response.status, await response.json().catch(() => null));
}

function problem(status, body) {
  return Object.assign(new Error(sentence(body?.error) || `The server answered ${status}.`), { status });
}

function waiting(response, attempt) {
  const told = Number(response.headers.get("retry-after") ?? NaN);
  return Math.min(LONGEST_S, Number.isFinite(told) ? Math.max(told, 0.5) : attempt);
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

// XMLHttpRequest and not fetch: only it tells how much of an upload has gone.
export function upload(path, form, onProgress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", path);
    sending.responseType = "json";
    sending.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    sending.onload = () => (sending.status < 300 ? resolve(sending.response) : reject(problem(sending.status, sending.response)));
    sending.onerror = () => reject(new Error("The upload broke off: the server refused it, or the connection is gone."));
    sending.send(form);
  });
}

export function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}
