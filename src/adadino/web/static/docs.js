// The OpenAPI document as a page, without anything from elsewhere.

import { ask } from "./api.js";
import { element } from "./dom.js";

const { paths } = await ask("/api/openapi.json");
for (const [path, methods] of Object.entries(paths)) {
  for (const [method, route] of Object.entries(methods)) {
    const title = element("h3", {}, element("b", { textContent: method.toUpperCase() }), element("code", { textContent: path }));
    const lines = [
      ...(route.parameters ?? []).map((p) => `${p.name} (in ${p.in}${p.required ? "" : ", optional"}) ${p.schema.description ?? p.description ?? ""}`),
      ...Object.keys(route.requestBody?.content ?? {}).map((type) => `takes ${type}`),
      ...Object.entries(route.responses).map(([status, { description }]) => `${status}: ${description}`),
    ];
    const list = element("ul", {}, ...lines.map((textContent) => element("li", { textContent })));
    const text = element("div", { textContent: `${route.summary}. ${route.description ?? ""}` });
    document.getElementById("routes").append(element("section", {}, title, text, list));
  }
}
