// The server's answers; a refusal becomes an Error with the server's own sentence.

export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  const body = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) {
    const problem = new Error(sentence(body?.error) || `The server answered ${response.status}.`);
    problem.status = response.status;
    throw problem;
  }
  return body;
}

// XMLHttpRequest and not fetch: only it tells how much of an upload has gone.
export function upload(path, form, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => (request.status < 300 ? resolve(request.response)
      : reject(new Error(sentence(request.response?.error) || `The server answered ${request.status}.`)));
    request.onerror = () => reject(new Error("The upload broke off: the server refused it, or the connection is gone."));
    request.send(form);
  });
}

export function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : "";
}
