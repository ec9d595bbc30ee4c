// Elements of the page.

export const $ = (id) => document.getElementById(id);

// An element with text, never with markup: names come from strangers.
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A line that is there only while it has something to say.
export function say(id, text) {
  $(id).hidden = !text;
  $(id).textContent = text || "";
}
